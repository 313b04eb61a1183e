-- The entries of sliding_window in all their forms, and its searches, by halves: O(log n) reads at most. All times
-- here count from 2026.
local key, second, third, fourth = ...
local foul = false

-- Time, units before, own units; nothing where the value is not an entry.
local function entry(value)
  local size = #value
  if size == 9 then
    local time, before = struct.unpack('>I6I3', value)
    return time, before, 1
  elseif size == 12 then
    return struct.unpack('>I6I3I3', value)
  elseif size == 10 then
    local time, before = struct.unpack('>I7I3', value)
    if time < 4503599627370496 then return time - 1767225600000000, before, 1 end
  elseif size == 13 then
    local time, before, units = struct.unpack('>I7I3I3', value)
    if time < 4503599627370496 then return time - 1767225600000000, before, units end
  end
end

if what == 'ends' then
  local time, before, units = entry(key)
  local last, last_before, last_units = entry(second)
  if last then return time, before, units, last, last_before, last_units end
  return
end

local function at(index)
  local value = redis.call('LINDEX', key, string.format('%d', index))
  if not value then return end
  local time, before, units = entry(value)
  foul = foul or not time
  return time, before, units
end

-- The first index above `low` that passes `test`, which holds at `high` and from wherever it first holds.
local function bisect(low, high, test)
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if test(at(middle)) then high = middle else low = middle end
  end
  return high
end

-- The first live entry after the first entry, which is dead: its index, then itself. By steps that double at first,
-- since few have died since the last charge.
if what == 'alive' then
  local alive = second
  local function lives(time) return not time or time > alive end
  local low, high = 0, 1
  while not lives(at(high)) do low, high = high, high * 2 end
  local index = bisect(low, high, lives)
  return index, at(index)
end

-- The time of the entry with whose death `need` units are free: the last that begins below them. Each entry has one
-- unit at least, so it is no further than `need`, and just there when all costs are one.
if what == 'freeing' then
  local dead, need, base = second, third, fourth
  local function beyond(time, before) return not time or (before - base) % 16777216 >= need end
  local index = dead + need - 1
  local time, before = at(index)
  if beyond(time, before) then time = at(bisect(dead, index, beyond) - 1) end
  return not foul and time
end
