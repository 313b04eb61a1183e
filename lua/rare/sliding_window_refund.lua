-- The refund of sliding_window: the units leave the moment of their charge; the counts after it are written again.
if what == 'take' then
  local window, charged, cost = second, third, fourth
  local value = redis.pcall('LINDEX', key, '-1')
  if not value then return 0 end
  local last = entry(value)
  if not last then return nil, value end
  charged = charged - 1767225600000000
  if charged > last or charged <= now - 1767225600000000 - window then return 0 end
  local newest = redis.call('LLEN', key) - 1
  local index = bisect(-1, newest, function(time) return not time or time >= charged end)
  local time, before, units = at(index)
  if foul then return nil, '' end
  if time ~= charged then return 0 end

  local function write(stamp, count, own)
    local tail = own == 1 and '' or struct.pack('>I3', own)
    if stamp >= 0 and stamp < 281474976710656 then return struct.pack('>I6I3', stamp, count % 16777216) .. tail end
    return struct.pack('>I7I3', stamp + 1767225600000000, count % 16777216) .. tail
  end

  -- At either end no other entry changes: the first one's count begins later instead.
  local taken = math.min(units, cost)
  local own = taken < units and write(time, index == 0 and before + taken or before, units - taken) or nil
  if index == 0 or index == newest then
    if own then redis.call('LSET', key, index, own) else redis.call(index == 0 and 'LPOP' or 'RPOP', key) end
    return taken
  end
  local later = {own}
  for from = index + 1, newest, 1000 do
    for _, value in ipairs(redis.call('LRANGE', key, from, from + 999)) do
      local stamp, count, their = entry(value)
      if not stamp then return nil, '' end
      later[#later + 1] = write(stamp, count - taken, their)
    end
  end
  redis.call('LTRIM', key, 0, index - 1)
  for from = 1, #later, 1000 do redis.call('RPUSH', key, unpack(later, from, math.min(#later, from + 999))) end
  return taken
end
