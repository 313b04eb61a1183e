-- Counting for adapters, not a decision. State: the start of the window, which begins with the first hit, and the
-- total. What is taken back (mode 'T') belongs to the window that began at `extra` and to no other.
if code == 6 then
  local value, start, total = redis.pcall('GET', key), now, 0
  if value then
    if #value ~= 14 then return nil, value end
    start, total = struct.unpack('>I7I7', value)
    if start >= 4503599627370496 or total > 9007199254740991 then return nil, '' end
    if now >= start + window then start, total, value = now, 0, false end
  end
  local by = cost
  if what == 96 then by = value and extra == start and -math.min(cost, total) or 0 end
  if not value and by == 0 then return 0, 0, 0 end
  local left, sum = start + window - now, math.min(total + by, 9007199254740991)
  if not value then
    redis.call('PSETEX', key, string.format('%d', math.ceil(left / 1000) + life), struct.pack('>I7I7', start, sum))
  elseif by ~= 0 then
    redis.call('SET', key, struct.pack('>I7I7', start, sum), 'KEEPTTL')
  end
  return sum, left, start
end
