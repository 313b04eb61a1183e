-- State: the time of the last charge and the units charged in its window. Windows are multiples of W of the clock.
if code == 5 then
  local room, retry, reset = 0, -1, 0
  if what ~= 'charge' then
    local value, last, used = redis.pcall('GET', key), -1, 0
    a = now
    if value then
      if #value ~= 10 then return nil, value end
      last, used = struct.unpack('>I7I3', value)
      if last >= 4503599627370496 then return nil, '' end
      if last > now then a = last end
    end
    local start = a - a % window
    b = last < start and 0 or used
    if what == 64 then
      local units = extra >= start and extra < start + window and math.min(cost, b) or 0
      if units > 0 then redis.call('SET', key, struct.pack('>I7I3', last, b - units), 'KEEPTTL') end
      return units
    end
    room = quota - b
    if b > 0 then reset = start + window - now end
    if cost > room and cost <= quota then retry = reset end
    if what ~= 'whole' or cost > room then return room, retry, reset, a, b end
  end

  local time, used = a, b
  reset = time - time % window + window - now
  redis.call('PSETEX', key, string.format('%d', (reset + -reset % 1000) / 1000 + life),
    struct.pack('>I7I3', time, used + cost))
  return room, retry, reset, time
end
