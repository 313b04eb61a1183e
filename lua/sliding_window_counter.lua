-- State: the time of the last charge, the units of its window, the units of the window before it.
if code == 4 then
  local room, retry, reset = 0, -1, 0
  if what ~= 'charge' then
    local value = redis.pcall('GET', key)
    a, b, c = now, 0, 0
    if value then
      if #value ~= 13 then return nil, value end
      a, b, c = struct.unpack('>I7I3I3', value)
      if a >= 4503599627370496 then return nil, '' end
    end
    if what == 64 then return algorithm('uncount', 0, key, window, extra, cost, a, b, c) end
    if now > a then
      local windows = (now - now % window - a + a % window) / window
      if windows > 0 then b, c = 0, windows == 1 and b or 0 end
      a = now
    end

    -- To be admitted, the share of the window before must shrink to what this window leaves; where this window alone
    -- is too full, its own share in the next one must.
    local offset, lag, share = a % window, a - now, (window - a % window) * c
    share = share < 4503599627370496 and (share + -share % window) / window
      or algorithm('share_up', 0, window - offset, c, window)
    room = quota - b - share
    if cost > room and cost <= quota then
      local ahead = cost + b > quota
      local spare, previous = quota - cost - (ahead and 0 or b), ahead and b or c
      retry = (ahead and 2 or 1) * window - algorithm('divide', 0, spare, window, 0, previous) - offset + lag
    end
    if b + c > 0 then reset = (b > 0 and 2 or 1) * window - offset + lag end
    if what ~= 'whole' or cost > room then return room, retry, reset, a, b, c end
  end

  local time, current, previous = a, b, c
  reset = 2 * window - time % window + time - now
  redis.call('PSETEX', key, string.format('%d', (reset + -reset % 1000) / 1000 + life),
    struct.pack('>I7I3I3', time, current + cost, previous))
  return room, retry, reset, time
end
