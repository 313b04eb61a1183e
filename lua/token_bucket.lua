-- State: the time of the last charge, the deficit as units and window-ths of a unit, the rate it was written with.
-- Amounts here are window-ths. Where a product may pass 2^52, rare/token_bucket.lua does the same in two parts.
if code == 3 then
  if what == 64 then return algorithm('credit', 0, key, quota, window, extra, cost, a, b, c) end
  if (extra + cost) * window >= 2251799813685248 then
    return algorithm('bucket', 0, what, key, quota, window, extra, cost, life, a, b, c)
  end
  local room, retry, reset, parts = 0, -1, 0, 0
  if what ~= 'charge' then
    local value, rate = redis.pcall('GET', key), quota
    a, b = now, 0
    if value then
      if #value ~= 19 then return nil, value end
      local last, units
      last, units, parts, rate = struct.unpack('>I7I3I6I3', value)
      if parts >= window or rate == 0 or last >= 4503599627370496 then return nil, '' end
      if units * window >= 2251799813685248 then
        return algorithm('bucket', 0, what, key, quota, window, extra, cost, life)
      end
      if last > now then a = last end
      if quota > rate then rate = quota end
      b = units * window + parts - (a - last) * rate
      if b < 0 then b = 0 end
    end
    local spare, wanted = extra * window - b, cost * window
    room = (spare - spare % window) / window
    if wanted > spare and cost <= extra then retry = (wanted - spare + (spare - wanted) % rate) / rate + a - now end
    if b > 0 then reset = (b + -b % rate) / rate + a - now end
    if what ~= 'whole' or cost > room then return room, retry, reset, a, b end
  end

  local time, deficit = a, b + cost * window
  parts, reset = deficit % window, (deficit + -deficit % quota) / quota + time - now
  redis.call('PSETEX', key, string.format('%d', (reset + -reset % 1000) / 1000 + life),
    struct.pack('>I7I3I6I3', time, (deficit - parts) / window, parts, quota))
  parts = b % window
  return room, retry, reset, time, (b - parts) / window, parts
end
