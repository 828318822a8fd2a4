-- DyRAM in ANEP over UDP, port 4143 by custom (docs/wire.md, DyRAM packets).

local here = debug.getinfo(1, "S").source:gsub("^@", ""):match("^(.*[/\\])") or ""
package.path = here .. "?.lua;" .. package.path
local polycast = require("polycast_shared")

local PORT = 4143
local DATA, REPAIR, NACK, ACK, ABSENT, JOIN, JOINED, LEAVE, CAST, MOVE, STALLED = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
local FEEDBACK = 12
local SERVICES = {
	[DATA] = "DATA", [REPAIR] = "REPAIR", [NACK] = "NACK", [ACK] = "ACK", [ABSENT] = "ABSENT",
	[JOIN] = "JOIN", [JOINED] = "JOINED", [LEAVE] = "LEAVE", [CAST] = "CAST", [MOVE] = "MOVE",
	[STALLED] = "STALLED", [FEEDBACK] = "FEEDBACK",
}
local OPTIONS = { [1] = "source identifier", [2] = "destination identifier" }
local SCHEMES = { [1] = "IPv4", [2] = "IPv6" }
local ROLES = { [0] = "receiver", [1] = "relay", [2] = "source" }
local STATUS = { [0] = "joined", [1] = "come again with this token", [2] = "full", [3] = "loop", [4] = "draining" }
local ANEP_TYPE, ANEP_DISCARD = 0x4459, 0x80
local NO_CHILD = 0xffff
local BODY = { [NACK] = 16, [ACK] = 0, [ABSENT] = 8, [JOIN] = 80, [JOINED] = 80, [LEAVE] = 8, [MOVE] = 8, [STALLED] = 24 }
local MAX_PATH = 14
local MAX_MESSAGE = 128

local dyram = polycast.protocol("dyram", "DyRAM in ANEP (polycast)", {
	anep_version = { "uint8", "ANEP version", base.DEC },
	anep_flags = { "uint8", "ANEP flags", base.HEX },
	anep_type = { "uint16", "ANEP type identifier", base.HEX },
	header_words = { "uint16", "ANEP header (32-bit words)", base.DEC },
	total_length = { "uint16", "Whole packet (bytes)", base.DEC },
	option = { "uint16", "ANEP option", base.DEC, OPTIONS },
	option_words = { "uint16", "Option length (32-bit words)", base.DEC },
	scheme = { "uint32", "Scheme", base.DEC, SCHEMES },
	source = { "ipv4", "Source" },
	source6 = { "ipv6", "Source" },
	group = { "ipv4", "Group" },
	group6 = { "ipv6", "Group" },
	service = { "uint8", "Service", base.DEC, SERVICES },
	flags = { "uint8", "Flags", base.HEX },
	flag_counts = { "bool", "The acknowledgement counts", 8, nil, 0x01 },
	status = { "uint8", "Status", base.DEC, STATUS, 0x0f },
	flag_live = { "bool", "LIVE: session and sequence are those of the running one", 8, nil, 0x10 },
	flag_attached = { "bool", "ATTACHED: the path begins at the source", 8, nil, 0x20 },
	role = { "uint8", "Role", base.DEC, ROLES },
	child = { "uint16", "Child", base.DEC },
	session = { "uint32", "Session", base.HEX },
	sequence = { "uint32", "Sequence", base.DEC },
	stalled = { "ipv6", "Stalled child" },
	stalled_port = { "uint16", "UDP port of the stalled child", base.DEC },
	rank = { "uint64", "Rank", base.DEC },
	held = { "uint32", "Held by relays below (us)", base.DEC },
	payload = { "bytes", "Payload" },
	source_port = { "uint16", "UDP port of the source", base.DEC },
	mask = { "uint64", "Mask", base.HEX },
	acknowledgement = { "uint32", "Acknowledgement", base.DEC },
	repeats = { "uint16", "Asked before", base.DEC },
	token = { "uint64", "Token", base.HEX },
	stamp = { "uint32", "Time stamp", base.DEC },
	farthest = { "uint32", "Round trip to the farthest receiver below (us)", base.DEC },
	receivers = { "uint32", "Receivers below", base.DEC },
	relay = { "uint32", "Relay", base.HEX },
	round_trip = { "uint32", "Round trip to the parent (us)", base.DEC },
	repair_time = { "uint32", "A repair takes (us)", base.DEC },
	refresh = { "uint16", "Join again within (ms)", base.DEC },
	path_length = { "uint8", "Path length", base.DEC },
	path = { "uint32", "Path", base.HEX },
})

-- One of the two ANEP options; the address.
local function option(reader, number, scheme, names)
	local v4 = scheme == 1
	local address
	reader:branch("ANEP option", function(part, item)
		local is = part:number("option", 2)
		local words = part:number("option_words", 2)
		local has = part:number("scheme", 4)
		part:expect(is == number and words == (v4 and 3 or 6) and has == scheme, "ANEP options do not name a session")
		local range = part:field(v4 and names[1] or names[2], v4 and 4 or 16)
		address = v4 and tostring(range:ipv4()) or tostring(range:ipv6())
		local mapped = not v4 and range:bytes():tohex():lower():find("^" .. ("0"):rep(20) .. "ffff")
		part:expect(not mapped, "an IPv4 address as IPv6")
		item:append_text(": " .. (OPTIONS[is] or "?") .. " " .. address)
	end)
	return address
end

local function header(reader)
	reader:expect(reader:number("anep_version", 1) == 1, "not ANEP version 1")
	reader:expect(reader:number("anep_flags", 1) == ANEP_DISCARD, "unknown ANEP flags")
	reader:expect(reader:number("anep_type", 2) == ANEP_TYPE, "not DyRAM")
	local words = reader:number("header_words", 2)
	local total = reader:number("total_length", 2)
	reader:expect(total == reader.tvb:reported_len(), "length is not that of the packet")
	if words ~= 8 and words ~= 14 then
		reader:stop_here("ANEP options do not name a session")
	end
	local scheme = words == 8 and 1 or 2
	local source = option(reader, 1, scheme, { "source", "source6" })
	local group = option(reader, 2, scheme, { "group", "group6" })
	return source, group
end

local body = {}

body[NACK] = function(reader, flags)
	reader:number("mask", 8)
	local ack = reader:number("acknowledgement", 4)
	reader:number("repeats", 2)
	reader:zero(2)
	reader:expect(flags <= 1 and (flags == 1 or ack == 0), "reserved bits are set")
end

body[ABSENT] = function(reader, flags)
	reader:number("mask", 8)
	reader:expect(flags == 0, "reserved flags are set")
end

body[ACK] = function(reader, flags)
	reader:expect(flags == 0, "reserved flags are set")
end

body[JOIN] = function(reader, flags)
	reader:number("token", 8)
	reader:number("stamp", 4)
	reader:number("farthest", 4)
	reader:number("receivers", 4)
	reader:number("relay", 4)
	reader:number("round_trip", 4)
	reader:zero(52)
	reader:expect(ROLES[flags], "unknown role")
end

body[JOINED] = function(reader, flags)
	reader:number("token", 8)
	reader:number("stamp", 4)
	reader:number("repair_time", 4)
	reader:number("refresh", 2)
	local length = reader:number("path_length", 1)
	reader:zero(5)
	reader:expect(length <= MAX_PATH, "the path is too long")
	for _ = 1, math.min(length, MAX_PATH) do
		reader:number("path", 4)
	end
	reader:zero(4 * (MAX_PATH - math.min(length, MAX_PATH)))
	reader:expect(flags < 0x40 and STATUS[flags % 16], "unknown flags or status")
end

body[LEAVE] = function(reader, flags)
	reader:number("token", 8)
	reader:expect(flags == 0, "reserved flags are set")
end

body[MOVE] = body[LEAVE]

body[STALLED] = function(reader, flags)
	reader:field("stalled", 16)
	reader:number("stalled_port", 2)
	reader:zero(2)
	local relay = reader:number("relay", 4)
	reader:expect(relay ~= 0, "no relay")
	reader:expect(flags == 0, "reserved flags are set")
end

-- What stands before the message in FEEDBACK.
local function ranked(reader, sequence)
	reader:number("rank", 8)
	reader:number("held", 4)
	reader:expect(sequence == 0, "sequence is not 0")
	reader:expect(reader:left_on_wire() <= MAX_MESSAGE, "the message is too long")
end

local NAMELESS = { [JOIN] = true, [LEAVE] = true, [MOVE] = true }

local function message(reader)
	local source, group = header(reader)
	local service = reader:number("service", 1)
	if not SERVICES[service] then
		reader:stop_here("unknown service")
	end
	local flags = reader:number(service == JOIN and "role" or "flags", 1)
	if service == NACK then
		reader:bits({ "flag_counts" })
	elseif service == JOINED then
		reader:bits({ "status", "flag_live", "flag_attached" })
	end
	local child, item = reader:number("child", 2)
	if child == NO_CHILD then
		item:append_text(" (none)")
	end
	local session = reader:number("session", 4)
	local sequence = reader:number("sequence", 4)
	local running = service == JOINED and flags % 32 >= 16
	if NAMELESS[service] or (service == JOINED and not running) then
		reader:expect(session == 0 and sequence == 0, "session and sequence are not 0")
	end
	local info = string.format("%s, (%s, %s) session %08x, sequence %d", SERVICES[service], source, group, session, sequence)
	if body[service] then
		reader:expect(reader:left_on_wire() >= BODY[service], "body is cut short")
		body[service](reader, flags)
		reader:finish()
		return info, nil
	end
	if service == FEEDBACK then
		ranked(reader, sequence)
	end
	reader:expect(flags == 0, "reserved flags are set")
	reader:expect(reader:left_on_wire() > 0, "nothing is carried")
	return info, service
end

-- What DATA, REPAIR, CAST and FEEDBACK carry: LTP where it looks like that.
local function carried(reader, service, pinfo, tree)
	local tail = service == CAST and 2 or 0
	local left = reader:left()
	local first = reader:peek(0, 1)
	local is_ltp = first and first:bitfield(0, 4) == 1 and left >= 12 + tail and Dissector.get("polycast.ltp")
	if not is_ltp then
		reader:rest("payload")
		return
	end
	local payload = reader:range(left - tail)
	if tail > 0 and reader.missing == 0 then
		reader:number("source_port", tail)
	end
	is_ltp:call(payload:tvb(), pinfo, tree)
end

function dyram.proto.dissector(tvb, pinfo, tree)
	local service
	local info, reader = polycast.dissect(dyram, tvb, tree, function(reader)
		local text
		text, service = message(reader)
		return text
	end)
	if info and service then
		carried(reader, service, pinfo, tree)
	end
	polycast.columns(pinfo, "DyRAM", info, reader)
	return tvb:captured_len()
end

local function heuristic(tvb, pinfo, tree)
	local ours = tvb:captured_len() >= 8 and tvb(0, 1):uint() == 1 and tvb(1, 1):uint() == ANEP_DISCARD
		and tvb(2, 2):uint() == ANEP_TYPE
	if ours then
		dyram.proto.dissector(tvb, pinfo, tree)
	end
	return ours
end

DissectorTable.get("udp.port"):add(PORT, dyram.proto)
dyram.proto:register_heuristic("udp", heuristic)
