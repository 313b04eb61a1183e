-- Whole-number arithmetic beyond 2^52. An amount is (units, parts): whole units and window-ths of a unit.

-- a * b / m, quotient and remainder, for a <= m < 2^45 and b < 2^28: seven bits of b at a time, so that no step leaves
-- the integers that a double holds.
local function share(a, b, m)
  local quotient, rest, weight = 0, 0, 2097152
  repeat
    local step = rest * 128 + a * (math.floor(b / weight) % 128)
    rest = step % m
    quotient = quotient * 128 + (step - rest) / m
    weight = weight / 128
  until weight < 1
  return quotient, rest
end

-- (units * window + parts) / divisor, quotient and remainder, exact while the quotient is below 2^52.
local function divide(units, window, parts, divisor)
  local left = window % divisor
  local total = units * left + parts
  local rest = total % divisor
  return units * ((window - left) / divisor) + (total - rest) / divisor, rest
end

local function divide_up(units, window, parts, divisor)
  local quotient, rest = divide(units, window, parts, divisor)
  return rest > 0 and quotient + 1 or quotient
end

-- What `elapsed` refills at `rate` units a window.
local function refill(elapsed, rate, window)
  local part = elapsed % window
  local units, parts = share(part, rate, window)
  return units + (elapsed - part) / window * rate, parts
end

-- One amount less another, never below nothing.
local function less(units, parts, by_units, by_parts, window)
  if by_units > units or (by_units == units and by_parts >= parts) then return 0, 0 end
  if by_parts > parts then return units - by_units - 1, parts + window - by_parts end
  return units - by_units, parts - by_parts
end

if what == 'divide' then return (divide(...)) end
if what == 'share_up' then
  local quotient, rest = share(...)
  return rest > 0 and quotient + 1 or quotient
end
