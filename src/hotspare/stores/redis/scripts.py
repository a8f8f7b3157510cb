"""What Redis does for the store in one step each, as scripts on the server. All keys of a group are in one slot of a cluster.

Content is kept while a snapshot names it: `refs` counts by how many. What no snapshot names yet, or any more, goes by itself after
a while, so a writer that died leaves nothing, and nobody has to look for it.
"""

from __future__ import annotations

HOLD = """
local found = {}
for i = 2, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 0 then redis.call('EXPIRE', KEYS[i], ARGV[1]) end
    found[#found + 1] = ARGV[i]
  end
end
return found
"""
"""KEYS refs, content ...; ARGV seconds, hash ...: those that are there, held for so long."""

WRITE = """
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  redis.call('SET', KEYS[2], ARGV[3])
else
  redis.call('SET', KEYS[2], ARGV[3], 'EX', ARGV[1])
end
"""
"""KEYS refs, content; ARGV seconds, hash, bytes."""

_RELEASE = """
local function release(refs, prefix, manifest, seconds)
  local seen = {}
  for _, hash in ipairs(cjson.decode(manifest).hashes) do
    if not seen[hash] then
      seen[hash] = true
      if redis.call('HINCRBY', refs, hash, -1) <= 0 then
        redis.call('HDEL', refs, hash)
        redis.call('EXPIRE', prefix .. hash, seconds)
      end
    end
  end
end
"""

PUBLISH = (
    _RELEASE
    + """
local name, manifest, prefix = ARGV[1], ARGV[3], ARGV[4]
local seen = {}
local hashes = cjson.decode(manifest).hashes
for _, hash in ipairs(hashes) do
  if redis.call('EXISTS', prefix .. hash) == 0 then return {'missing'} end
end
local before = redis.call('HGET', KEYS[4], name)
if before then
  local confirmed = redis.call('HEXISTS', KEYS[3], name)
  if before == manifest then return {'there', redis.call('HGET', KEYS[2], name), confirmed} end
  if confirmed == 1 then return {'taken'} end
end
for _, hash in ipairs(hashes) do
  if not seen[hash] then
    seen[hash] = true
    redis.call('HINCRBY', KEYS[1], hash, 1)
    redis.call('PERSIST', prefix .. hash)
  end
end
if before then release(KEYS[1], prefix, before, ARGV[5]) end
redis.call('HSET', KEYS[2], name, ARGV[2])
redis.call('HSET', KEYS[4], name, manifest)
return {'written'}
"""
)
"""KEYS refs, infos, confirmed, manifests; ARGV name, info, manifest, prefix of contents, seconds. `missing`: a content is gone;
`there`, with its info and whether it is confirmed: the same is there; `taken`: another one of that name is confirmed."""

CONFIRM = """
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[2], ARGV[1], 1)
return 1
"""
"""KEYS infos, confirmed; ARGV name. 0: it is gone."""

DISCARD = (
    _RELEASE
    + """
local manifest = redis.call('HGET', KEYS[4], ARGV[1])
if not manifest then return 0 end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
release(KEYS[1], ARGV[2], manifest, ARGV[3])
return 1
"""
)
"""KEYS refs, infos, confirmed, manifests; ARGV name, prefix of contents, seconds."""

READ = """
local manifest = redis.call('HGET', KEYS[4], ARGV[1])
if not manifest then return {'gone'} end
local seen, decoded = {}, cjson.decode(manifest)
for _, hash in ipairs(decoded.hashes) do
  if redis.call('EXISTS', ARGV[3] .. hash) == 0 then return {'missing', hash} end
end
for _, hash in ipairs(decoded.hashes) do
  if not seen[hash] then
    seen[hash] = true
    redis.call('HINCRBY', KEYS[1], hash, 1)
  end
end
redis.call('HSET', KEYS[2], ARGV[2], manifest)
redis.call('ZADD', KEYS[3], redis.call('TIME')[1], ARGV[2])
return {'read', manifest}
"""
"""KEYS refs, readers, alive, manifests; ARGV name, reader, prefix of contents. `read`, with the manifest: what it names stays
until that reader lets go; `gone`: the snapshot is; `missing`: that content is."""

RENEW = "return redis.call('ZADD', KEYS[1], 'XX', redis.call('TIME')[1], ARGV[1])"
"""KEYS alive; ARGV reader."""

LET_GO = (
    _RELEASE
    + """
local readers = {ARGV[1]}
if ARGV[1] == '' then
  readers = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', redis.call('TIME')[1] - ARGV[4])
end
for _, reader in ipairs(readers) do
  local manifest = redis.call('HGET', KEYS[2], reader)
  redis.call('HDEL', KEYS[2], reader)
  redis.call('ZREM', KEYS[3], reader)
  if manifest then release(KEYS[1], ARGV[2], manifest, ARGV[3]) end
end
return #readers
"""
)
"""KEYS refs, readers, alive; ARGV reader, prefix of contents, seconds, seconds after which a reader is dead. Of reader "": the
dead ones."""
