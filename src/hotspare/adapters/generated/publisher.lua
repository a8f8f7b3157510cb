-- What the code of a publisher finds beside what every program has: where its events go, and the project's files, to be read.
local made = {}

local function take(event, opcode)
  if event._opcode == nil then event._opcode = opcode end
  made[#made + 1] = event
end

-- An event, or a list of them. They are copied: code may change a table and give it again.
function esp_inject(events, options)
  if events == nil or next(events) == nil then return true end
  local list = events
  if events[1] == nil then list = { events } end
  for i = 1, #list do
    local event = {}
    for name, value in pairs(list[i]) do event[name] = value end
    take(event, options and options.opcode)
  end
  return true
end

-- Rows in CSV, without opcode and flags.
function esp_injectCsv(text, options)
  take({ ["hs:csv"] = text }, options and options.opcode)
  return true
end

-- A call of the function of the project: what it gave, and whether it says that it is done.
function hs_publish()
  made = {}
  local is_done = _G[hs_function()]() == true
  local events = made
  made = {}
  return { events = events, done = is_done }
end

-- Files that the code names, as they were when it was loaded. A handle is a table, so where it stands is kept.
local handle = {}
handle.__index = handle

local function line_of(file, keeps_end)
  local text, at = hs_text(file.path), file.at
  if at > #text then return nil end
  local feed = string.find(text, "\n", at, true) or #text + 1
  file.at = feed + 1
  return string.sub(text, at, keeps_end and feed or feed - 1)
end

function handle:read(form)
  form = string.gsub(form or "l", "^%*", "")
  if string.sub(form, 1, 1) == "a" then
    local rest = string.sub(hs_text(self.path), self.at)
    self.at = #hs_text(self.path) + 1
    return rest
  end
  if form == "l" or form == "L" then return line_of(self, form == "L") end
  error("a file is read by lines, or as a whole", 2)
end

function handle:lines()
  return function() return line_of(self, false) end
end

function handle:close() return true end

io = {}

function io.open(path, mode)
  if mode and string.find(mode, "[wa+]") then error("a publisher writes no files", 2) end
  if hs_text(path) == nil then return nil, tostring(path) .. ": not a file of the project that its code names in quotes" end
  return setmetatable({ path = path, at = 1 }, handle)
end

function io.lines(path)
  local file, why = io.open(path)
  if not file then error(why, 2) end
  return file:lines()
end
