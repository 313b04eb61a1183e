-- One call, its keys in KEYS; or many in turn, each seeing the writes of those before it: the number of a call's keys,
-- the keys, its packed arguments, and so on. Packed arguments are longer than any number. A call that fails spoils no
-- other's answer.
local arguments = ARGV[1]
if #arguments > 3 then return decide(KEYS, 1, arguments, 1, 0) end
local replies, at = {}, 1
while at < #ARGV do
  local number = tonumber(ARGV[at])
  local done, reply = pcall(decide, ARGV, at + 1, ARGV[at + number + 1], 1, 0)
  replies[#replies + 1] = done and reply or 'Y' .. (type(reply) == 'table' and reply.err or tostring(reply))
  at = at + number + 2
end
return replies
