-- Why a state cannot be used: 'X' where it is not ours, and the key (law 11), else 'Y' and the server's own words.
if what == 'refusal' then
  local value, key = ...
  if type(value) ~= 'table' or string.find(value.err, '^WRONGTYPE') then return 'X' .. key end
  return 'Y' .. value.err
end

-- Refund and count: no decisions, and each limit for itself.
if what == 'amend' then
  local action, code, key, quota, window, extra, cost, life, id, a, b, c = ...
  a, b, c = algorithm(action, code, key, quota, window, extra, cost, life, id, a, b, c)
  if not a then return nil, rare('refusal', b, key) end
  return true, struct.pack('>I4ddd', 0, a, b or 0, c or 0)
end
