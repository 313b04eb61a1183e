-- token_bucket in two-part amounts, for buckets too large for plain doubles, and its refund.
if what == 'bucket' then
  local action, key, quota, window, burst, cost, life, time, units, parts = ...
  local room, retry, reset = 0, -1, 0
  if action ~= 'charge' then
    local value, rate = redis.pcall('GET', key), quota
    time, units, parts = now, 0, 0
    if value then
      if #value ~= 19 then return nil, value end
      local last
      last, units, parts, rate = struct.unpack('>I7I3I6I3', value)
      if parts >= window or rate == 0 or last >= 4503599627370496 then return nil, '' end
      time, rate = math.max(now, last), math.max(rate, quota)
      local gone, gone_parts = refill(time - last, rate, window)
      units, parts = less(units, parts, gone, gone_parts, window)
    end
    room = burst - units - (parts > 0 and 1 or 0)
    if cost > room and cost <= burst then retry = divide_up(units + cost - burst, window, parts, rate) + time - now end
    if units + parts > 0 then reset = divide_up(units, window, parts, rate) + time - now end
    if action ~= 'whole' or cost > room then return room, retry, reset, time, units, parts end
  end
  reset = divide_up(units + cost, window, parts, quota) + time - now
  redis.call('PSETEX', key, string.format('%d', math.ceil(reset / 1000) + life),
    struct.pack('>I7I3I6I3', time, units + cost, parts, quota))
  return room, retry, reset, time, units, parts
end

-- Credits max(0, min(deficit, c - max(0, rate * (now - t) - d))): t the time of the charge, d the deficit before it,
-- rate the fastest of the receipt's, the stored and the asked one (law 5). The time and the rate stay as they are.
if what == 'credit' then
  local key, quota, window, charged, cost, charged_rate, before, before_parts = ...
  local value = redis.pcall('GET', key)
  if not value then return 0 end
  if #value ~= 19 then return nil, value end
  local last, units, parts, rate = struct.unpack('>I7I3I6I3', value)
  if parts >= window or rate == 0 or last >= 4503599627370496 then return nil, '' end
  local time, fastest = math.max(now, last), math.max(rate, quota)
  local gone, gone_parts = refill(time - last, fastest, window)
  local deficit, deficit_parts = less(units, parts, gone, gone_parts, window)
  gone, gone_parts = refill(math.max(0, time - charged), math.max(fastest, charged_rate), window)
  gone, gone_parts = less(gone, gone_parts, before, before_parts, window)
  local credit, credit_parts = less(cost, 0, gone, gone_parts, window)
  if credit > deficit or (credit == deficit and credit_parts > deficit_parts) then
    credit, credit_parts = deficit, deficit_parts
  end
  if credit + credit_parts == 0 then return 0 end
  units, parts = less(units, parts, credit, credit_parts, window)
  redis.call('SET', key, struct.pack('>I7I3I6I3', last, units, parts, rate), 'KEEPTTL')
  return credit_parts > 0 and credit + 1 or credit
end
