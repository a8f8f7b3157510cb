"""What Redis does for a StateDB writer in one step each, as scripts on the server.

The note of a stream, a hash under the prefix of its records, says under which epoch it is written, up to which sequence, and where
to go on reading. Who finds another epoch or sequence there than it knows writes nothing.
"""

from __future__ import annotations

OPEN = """
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch and tonumber(epoch) > tonumber(ARGV[1]) then return {0} end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
if ARGV[3] == '' then redis.call('DEL', KEYS[3]) else redis.call('SET', KEYS[3], ARGV[3]) end
return {1, redis.call('HGET', KEYS[1], 'sequence') or '0', redis.call('HGET', KEYS[1], 'position') or ''}
"""
"""KEYS note, fields of the key, indexes; ARGV epoch, and what these hold. 0: a newer epoch has written."""

WRITE = """
local known = redis.call('HMGET', KEYS[1], 'epoch', 'sequence')
if known[1] ~= ARGV[1] or (known[2] or '0') ~= ARGV[2] then return 0 end
for _, record in ipairs(cjson.decode(ARGV[5])) do
  local key = record.key
  local indexed = redis.call('HGET', key, '_hotspare_indexed_')
  if indexed and not record.partial then
    for _, index in ipairs(cjson.decode(indexed)) do redis.call('ZREM', index, key) end
  end
  if not record.values then
    redis.call('DEL', key)
  else
    if not record.partial then redis.call('DEL', key) end
    redis.call('HSET', key, unpack(record.values))
    if record.indexes then
      for _, index in ipairs(record.indexes) do
        redis.call('ZREMRANGEBYSCORE', index, '-inf', '(' .. record.dead)
        redis.call('ZADD', index, record.dies, key)
        local last = redis.call('ZREVRANGE', index, 0, 0, 'WITHSCORES')[2]
        redis.call('PEXPIREAT', index, string.format('%.0f', math.floor((tonumber(last) + record.after) / 1000)))
      end
      redis.call('HSET', key, '_hotspare_indexed_', cjson.encode(record.indexes))
    end
    if record.expire then redis.call('PEXPIREAT', key, record.expire) end
  end
end
redis.call('HSET', KEYS[1], 'sequence', ARGV[3])
if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'position', ARGV[4]) end
return 1
"""
"""KEYS note; ARGV epoch, sequence before, sequence behind, position behind or nothing, records. 0: the note says otherwise."""
