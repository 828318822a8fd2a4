-- Broadcast Federation: data packets between data nodes, over UDP, or TCP that begins with an ATTACH
-- (docs/wire.md, Federation data packets). Ports are agreed on in TRANSLATION, so they are recognised.

local here = debug.getinfo(1, "S").source:gsub("^@", ""):match("^(.*[/\\])") or ""
package.path = here .. "?.lua;" .. package.path
local polycast = require("polycast_shared")

local DATA, ATTACH, REPORT, PROBE, ECHO, FRAGMENT = 1, 2, 3, 4, 5, 6
local INIT, INIT_REQUEST, REPAIR_REQUEST, TAIL, PARITY = 7, 8, 9, 10, 11
local TYPES = {
	[DATA] = "DATA", [ATTACH] = "ATTACH", [REPORT] = "REPORT", [PROBE] = "PROBE", [ECHO] = "ECHO",
	[FRAGMENT] = "FRAGMENT", [INIT] = "INIT", [INIT_REQUEST] = "INIT_REQUEST",
	[REPAIR_REQUEST] = "REPAIR_REQUEST", [TAIL] = "TAIL", [PARITY] = "PARITY",
}
local HEADER_LEN, REPORT_LEN, MAX_PAYLOAD_LEN = 20, 16, 65000
local FRAGMENT_LEN, MAX_FRAGMENTS = 8, 64
local INIT_LEN, MAX_INIT_LEN = 8, 64000
local REPAIR_LEN = 12
local PARITY_LEN, SHARD_LEN, MAX_BLOCK, MAX_PARITY = 4, 4, 32, 8

local data = polycast.protocol("bfed_data", "Broadcast Federation data (polycast)", {
	version = { "uint8", "Version", base.DEC, nil, 0xf0 },
	type = { "uint8", "Type", base.DEC, TYPES, 0x0f },
	flags = { "uint8", "Sent before (0x80); class: priority (0x60), lifetime (0x1f)", base.HEX },
	age = { "uint16", "Age (ms)", base.DEC },
	rtt_units = { "uint16", "Round-trip time (32 us)", base.DEC },
	payload_length = { "uint16", "Length of the payload", base.DEC },
	label = { "uint32", "Flow label", base.HEX },
	sequence = { "uint32", "Sequence", base.DEC },
	timestamp = { "uint32", "Sent (us)", base.DEC },
	rtt = { "uint32", "Round-trip time (us)", base.DEC },
	cookie = { "uint64", "Cookie", base.HEX },
	frame = { "uint32", "Frame", base.DEC },
	index = { "uint8", "Index of the fragment", base.DEC },
	count = { "uint8", "Fragments", base.DEC },
	generation = { "uint32", "Generation of the initialisation", base.HEX },
	total = { "uint16", "Length of the initialisation", base.DEC },
	block = { "uint8", "Packets of the block", base.DEC },
	parities = { "uint8", "PARITY packets of the block", base.DEC },
	parity = { "uint8", "Index of the PARITY", base.DEC },
	first = { "uint32", "First packet that is missing", base.DEC },
	others = { "uint64", "Packets after it that are missing", base.HEX },
	offset = { "uint16", "Offset in the initialisation", base.DEC },
	payload = { "bytes", "Payload" },
	echo = { "uint32", "Time of the newest packet (us)", base.DEC },
	delay = { "uint32", "How long ago that came (us)", base.DEC },
	rate = { "uint32", "Received (bytes/s)", base.DEC },
	loss = { "uint32", "Loss event rate (2^-32)", base.DEC },
})

-- Whether a packet of that type may have these flags.
local function are_flags(kind, flags)
	local is_data = kind == DATA or kind == FRAGMENT
	local may_have = is_data or (kind == TAIL or kind == PARITY) and flags < 0x80
	return flags == 0 or may_have and flags % 0x20 ~= 0
end

local function packet(reader)
	local version, kind = reader:version_and_type()
	reader:expect(version == 1, "another version")
	if not TYPES[kind] then
		reader:stop_here("unknown type")
	end
	local flags = reader:number("flags", 1)
	reader:expect(are_flags(kind, flags), "reserved flags are not 0")
	local length = reader:number("payload_length", 2)
	local label = reader:number("label", 4)
	local sequence = reader:number("sequence", 4)
	if kind == PROBE or kind == ECHO then
		reader:number("cookie", 8)
	else
		reader:number("timestamp", 4)
		if flags ~= 0 then
			reader:number("rtt_units", 2)
			reader:number("age", 2)
		else
			reader:number("rtt", 4)
		end
	end
	reader:expect(label ~= 0, "no label")
	reader:expect(length <= MAX_PAYLOAD_LEN, "a payload longer than 65,000 bytes")
	reader:expect(length == reader:left_on_wire(), "the length is not that of the payload")
	if kind == FRAGMENT then
		reader:expect(length > FRAGMENT_LEN, "a fragment without bytes")
		reader:number("frame", 4)
		local index = reader:number("index", 1)
		local count = reader:number("count", 1)
		reader:zero(2)
		reader:expect(count >= 2 and count <= MAX_FRAGMENTS and index < count, "no such fragment")
		reader:rest("payload")
	elseif kind == INIT then
		reader:expect(length >= INIT_LEN, "an INIT without its front")
		reader:number("generation", 4)
		local total, offset = reader:number("total", 2), reader:number("offset", 2)
		local bytes = length - INIT_LEN
		reader:expect(total <= MAX_INIT_LEN and offset + bytes <= total, "longer than its total")
		reader:expect(total == 0 or bytes > 0, "an INIT without bytes")
		reader:rest("payload")
	elseif kind == INIT_REQUEST then
		reader:expect(length == INIT_LEN, "an INIT_REQUEST has 8 bytes")
		reader:number("generation", 4)
		reader:zero(2)
		reader:number("offset", 2)
	elseif kind == REPAIR_REQUEST then
		reader:expect(length == REPAIR_LEN, "a REPAIR_REQUEST has 12 bytes")
		reader:number("first", 4)
		reader:number("others", 8)
	elseif kind == PARITY then
		local shard = length - PARITY_LEN
		reader:expect(shard >= SHARD_LEN and shard % 2 == 0, "a shard that is too short or of odd length")
		local packets, total = reader:number("block", 1), reader:number("parities", 1)
		local parity = reader:number("parity", 1)
		reader:zero(1)
		reader:expect(packets >= 1 and packets <= MAX_BLOCK, "no such block")
		reader:expect(total >= 1 and total <= MAX_PARITY and parity < total, "no such parity")
		reader:rest("payload")
	elseif kind == REPORT and reader:left_on_wire() == REPORT_LEN then
		reader:number("echo", 4)
		reader:number("delay", 4)
		reader:number("rate", 4)
		local loss, item = reader:number("loss", 4)
		item:append_text(string.format(" (%.4f %%)", 100 * loss / 2 ^ 32))
	else
		reader:expect(kind ~= REPORT, "a REPORT has 16 bytes")
		reader:rest("payload")
	end
	return string.format("%s, label %08x, sequence %d", TYPES[kind], label, sequence)
end

local function one(tvb, pinfo, tree)
	local info, reader = polycast.dissect(data, tvb, tree, packet)
	polycast.columns(pinfo, "BFed data", info, reader)
	return tvb:captured_len()
end

-- What is no packet of ours is one packet up to its end, which is then refused.
local function packet_length(tvb, pinfo, offset)
	local kind, flags = tvb(offset, 1):bitfield(4, 4), tvb(offset + 1, 1):uint()
	if tvb(offset, 1):bitfield(0, 4) ~= 1 or not are_flags(kind, flags) then
		return tvb:len() - offset
	end
	return HEADER_LEN + tvb(offset + 2, 2):uint()
end

function data.proto.dissector(tvb, pinfo, tree)
	if pinfo.port_type == 3 then
		return one(tvb, pinfo, tree)
	end
	dissect_tcp_pdus(tvb, tree, HEADER_LEN, packet_length, one)
	return tvb:captured_len()
end

local function over_udp(tvb, pinfo, tree)
	if tvb:captured_len() < HEADER_LEN or tvb(0, 1):bitfield(0, 4) ~= 1 then
		return false
	end
	if not are_flags(tvb(0, 1):bitfield(4, 4), tvb(1, 1):uint()) then
		return false
	end
	local kind, length = tvb(0, 1):bitfield(4, 4), tvb(2, 2):uint()
	local fits = length == tvb:reported_len() - HEADER_LEN and tvb(4, 4):uint() ~= 0
	local data_like = kind == DATA and length > 0 or kind == FRAGMENT and length > FRAGMENT_LEN
	local ours = fits and (data_like or kind == REPORT and length == REPORT_LEN)
	if ours then
		pinfo.conversation = data.proto
		one(tvb, pinfo, tree)
	end
	return ours
end

-- A TCP channel: its first packet is an ATTACH of 20 bytes, all zero but type, label and what its sender understands.
local function over_tcp(tvb, pinfo, tree)
	if tvb:captured_len() < HEADER_LEN or tvb(0, 4):uint() ~= 0x12000000 or tvb(4, 4):uint() == 0 then
		return false
	end
	if tvb(8, 4):uint() > 1 or not polycast.is_zero(tvb(12, 8)) then
		return false
	end
	pinfo.conversation = data.proto
	data.proto.dissector(tvb, pinfo, tree)
	return true
end

data.proto:register_heuristic("udp", over_udp)
data.proto:register_heuristic("tcp", over_tcp)
DissectorTable.get("udp.port"):add_for_decode_as(data.proto)
DissectorTable.get("tcp.port"):add_for_decode_as(data.proto)
