-- One call, its keys in KEYS and its packed arguments alone in ARGV; or many in turn, each seeing the writes of those
-- before it: the number of a call's keys unless it has one, the keys, its packed arguments, and so on. Keys and packed
-- arguments are longer than any number. A call that fails spoils no other's answer.
local all = #ARGV
if all == 1 then return decide(KEYS, 1, ARGV[1], 1, 0) end
local replies, count, at = {}, 0, 1
while at < all do
  local number = 1
  if #ARGV[at] < 4 then number, at = tonumber(ARGV[at]), at + 1 end
  local done, reply = pcall(decide, ARGV, at, ARGV[at + number], 1, 0)
  count, at = count + 1, at + number + 1
  replies[count] = done and reply or 'Y' .. (type(reply) == 'table' and reply.err or tostring(reply))
end
return replies
