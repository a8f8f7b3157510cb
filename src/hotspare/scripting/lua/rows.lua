-- Rows of bytes and events: made for the fields of one window, so that a row costs one call to take apart, and one to put together.
--
--   a row that comes in   8 bytes a field (of texts begin and end in one long text), a mask of nulls for each group, opcode, time, seed
--   a row that goes out   number of the event that made it, opcode, then for each group a mask of nulls and 8 bytes a field
local host = ...
local load, concat, format, error = load, table.concat, string.format, error

local GROUP = 48 -- fields: a function of Lua has 200 locals at most, and a mask 63 bits
local TEXT_BYTES_MAX = 16 << 20 -- of what one event causes, and of what is put together before it is handed out

local function made(lines, name, names)
  return assert(load(concat(lines, "\n"), "=" .. name, "t", {
    unpack = string.unpack, pack = string.pack, sub = string.sub, lower = string.lower, math_type = math.type, type = type, tostring = host.text, nan = host.unsigned(0 / 0),
    getmetatable = debug.getmetatable, rawget = rawget, ipairs = ipairs, concat = concat, names = names, opcodes = host.opcodes, text = host.shown, TEXT_BYTES_MAX = TEXT_BYTES_MAX,
  }))()
end

local function groups_of(count)
  local groups = {}
  for first = 1, count, GROUP do groups[#groups + 1] = { first, first + GROUP - 1 < count and first + GROUP - 1 or count } end
  if #groups == 0 then groups[1] = { 1, 0 } end
  return groups
end

-- `kinds`: "i" whole, "d" double, "s" text.
function host.reader(names, kinds)
  local lines, offset, width = { "return function(rows, row)" }, 0, 24
  local groups = groups_of(#names)
  for i = 1, #names do width = width + (kinds[i] == "s" and 16 or 8) end
  width = width + 8 * #groups
  lines[#lines + 1] = format("  local bytes, text, at = rows.bytes, rows.text, (row - 1) * %d + 1", width)
  lines[#lines + 1] = "  local event = {}"
  for _, group in ipairs(groups) do
    local locals, formats, fields, nulls = {}, {}, {}, {}
    for i = group[1], group[2] do
      if kinds[i] == "s" then
        locals[#locals + 1] = format("a%d, b%d", i, i)
        formats[#formats + 1] = "i8i8"
        fields[#fields + 1] = format("[%q] = sub(text, a%d, b%d)", names[i], i, i)
      else
        locals[#locals + 1] = "a" .. i
        formats[#formats + 1] = kinds[i] == "d" and "d" or "i8"
        fields[#fields + 1] = format("[%q] = a%d", names[i], i)
      end
      nulls[#nulls + 1] = format("      if nulls & %d ~= 0 then event[%q] = nil end", 1 << (i - group[1]), names[i])
    end
    locals[#locals + 1], formats[#formats + 1] = "nulls", "i8"
    lines[#lines + 1] = format('  do local %s = unpack("<%s", bytes, at + %d)', concat(locals, ", "), concat(formats), offset)
    if group[1] == 1 then
      lines[#lines + 1] = "    event = {" .. concat(fields, ", ") .. "}"
    else
      for i = 1, #fields do lines[#lines + 1] = "    event" .. fields[i] end
    end
    lines[#lines + 1] = "    if nulls ~= 0 then"
    lines[#lines + 1] = concat(nulls, "\n")
    lines[#lines + 1] = "    end"
    lines[#lines + 1] = "  end"
    for i = group[1], group[2] do offset = offset + (kinds[i] == "s" and 16 or 8) end
    offset = offset + 8
  end
  lines[#lines + 1] = format('  local opcode, us, seed = unpack("<i8i8i8", bytes, at + %d)', offset)
  lines[#lines + 1] = "  return event, opcode, us, seed"
  lines[#lines + 1] = "end"
  return made(lines, "reader", names)
end

local CHECKS = {
  i4 = 'if math_type(v) ~= "integer" or v < -0x80000000 or v > 0x7fffffff then odd(n, %d, v) nulls = nulls | %d v = 0 end',
  i8 = 'if math_type(v) ~= "integer" then odd(n, %d, v) nulls = nulls | %d v = 0 end',
  d = 'if math_type(v) == "integer" then v = v + 0.0 elseif math_type(v) ~= "float" then odd(n, %d, v) nulls = nulls | %d v = 0.0 elseif v ~= v then v = nan end',
  o = "odd(n, %d, v) nulls = nulls | %d v = 0",
}

-- `kinds`: "i4", "i8", "d", "s" text, "b" bytes, "o" whatever Lua cannot judge.
function host.writer(names, kinds)
  local groups = groups_of(#names)
  local lines = {
    "local out, odds, texts, writer, size, limit = {}, {}, {}, {count = 0}, 0, 0",
    format("for i = 1, %d do texts[i] = {} end", #names),
    "local function odd(n, field, v)",
    "  local m = #odds",
    "  odds[m + 1], odds[m + 2], odds[m + 3] = n, field, v",
    "end",
    "function writer.begin() limit = size + TEXT_BYTES_MAX end",
    "function writer.write(row, event)",
    "  local n = writer.count + 1",
    "  if getmetatable(event) then",
    "    local plain = {}",
    "    for _, name in ipairs(names) do plain[name] = rawget(event, name) end",
    "    plain._opcode = rawget(event, '_opcode')",
    "    event = plain",
    "  end",
    "  local opcode = event._opcode",
    "  if opcode == nil then opcode = 0 else",
    "    local found = opcodes[type(opcode) == 'string' and lower(opcode)]",
    "    if not found then return '_opcode is ' .. text(opcode) .. ', not one of insert, update, upsert, delete, safedelete' end",
    "    opcode = found",
    "  end",
    "  local nulls, v",
  }
  for g, group in ipairs(groups) do
    local values, formats = { "nulls" }, { "i8" }
    if g == 1 then values, formats = { "row", "opcode", "nulls" }, { "i8", "i8", "i8" } end
    lines[#lines + 1] = "  do"
    lines[#lines + 1] = "    nulls = 0"
    for i = group[1], group[2] do
      local bit, kind = 1 << (i - group[1]), kinds[i]
      lines[#lines + 1] = format("    v = event[%q]", names[i])
      if kind == "s" or kind == "b" then
        lines[#lines + 1] = '    if type(v) ~= "string" then'
        if kind == "s" then
          lines[#lines + 1] = '      if type(v) == "number" or type(v) == "boolean" then v = tostring(v)'
        else
          lines[#lines + 1] = "      if false then"
        end
        lines[#lines + 1] = format("      else if v ~= nil then odd(n, %d, v) end nulls = nulls | %d v = '' end", i, bit)
        lines[#lines + 1] = "    end"
        lines[#lines + 1] = format("    texts[%d][n] = v v = #v size = size + v", i)
      else
        lines[#lines + 1] = format("    if v == nil then nulls = nulls | %d v = %s else", bit, kind == "d" and "0.0" or "0")
        lines[#lines + 1] = "      " .. format(CHECKS[kind], i, bit)
        lines[#lines + 1] = "    end"
      end
      lines[#lines + 1] = format("    local v%d = v", i)
      values[#values + 1], formats[#formats + 1] = "v" .. i, kind == "d" and "d" or "i8"
    end
    lines[#lines + 1] = format('    out[(n - 1) * %d + %d] = pack("<%s", %s)', #groups, g, concat(formats), concat(values, ", "))
    lines[#lines + 1] = "  end"
  end
  lines[#lines + 1] = "  writer.count = n"
  lines[#lines + 1] = "  if size > limit then return 'makes more than ' .. TEXT_BYTES_MAX .. ' bytes of text' end"
  lines[#lines + 1] = "end"
  lines[#lines + 1] = "function writer.is_full(made_max) return writer.count >= made_max or size >= TEXT_BYTES_MAX end"
  lines[#lines + 1] = "function writer.cut(count)"
  lines[#lines + 1] = "  writer.count = count"
  lines[#lines + 1] = "  while #odds > 0 and odds[#odds - 2] > count do odds[#odds], odds[#odds - 1], odds[#odds - 2] = nil, nil, nil end"
  lines[#lines + 1] = "end"
  lines[#lines + 1] = "function writer.taken()"
  lines[#lines + 1] = "  local count, joined = writer.count, {}"
  for i = 1, #names do
    if kinds[i] == "s" or kinds[i] == "b" then
      lines[#lines + 1] = format('  joined[#joined + 1] = concat(texts[%d], "", 1, count)', i)
    end
  end
  lines[#lines + 1] = format('  local bytes, strange = concat(out, "", 1, count * %d), odds', #groups)
  lines[#lines + 1] = "  out, odds, size, writer.count = {}, {}, 0, 0"
  lines[#lines + 1] = format("  for i = 1, %d do texts[i] = {} end", #names)
  lines[#lines + 1] = "  return count, bytes, joined, strange"
  lines[#lines + 1] = "end"
  lines[#lines + 1] = "return writer"
  return made(lines, "writer", names)
end
