-- The members of sliding_window_log for a cost above one, and its refund.
local function member(id, unit)
  return unit == 1 and id or string.format('%d', unit) .. id
end

if what == 'add' then
  local key, score, id, cost = ...
  for first = 1, cost, 1000 do
    local units = {}
    for unit = first, math.min(cost, first + 999) do
      units[#units + 1] = score
      units[#units + 1] = member(id, unit)
    end
    redis.call('ZADD', key, unpack(units))
  end
end

if what == 'remove' then
  local key, window, charged, cost, id = ...
  local known = redis.pcall('ZSCORE', key, id)
  if not known then return 0 end
  if type(known) == 'table' then return nil, known end
  if tonumber(known) ~= charged or charged <= now - window then return 0 end
  local units = 0
  for unit = 1, cost do units = units + redis.call('ZREM', key, member(id, unit)) end
  return units
end
