-- Layers of ldc-stream: TCP, recognised by the "LDCS" it begins with (docs/wire.md, Layers of ldc-stream).

local here = debug.getinfo(1, "S").source:gsub("^@", ""):match("^(.*[/\\])") or ""
package.path = here .. "?.lua;" .. package.path
local polycast = require("polycast_shared")

local HEADER_LEN, MAX_PAYLOAD = 32, 2 ^ 20
local MAGIC = 0x4c444353
local DATA, END = 1, 2
local TYPES = { [DATA] = "message", [END] = "end" }

local ldc = polycast.protocol("ldc", "ldc-stream (polycast)", {
	magic = { "string", "Identifier", base.ASCII },
	version = { "uint8", "Version", base.DEC },
	layers = { "uint8", "Layers", base.DEC },
	generated = { "uint8", "Generated", base.DEC },
	window_length = { "uint32", "Length of a window (us)", base.DEC },
	longest = { "uint32", "Longest payload (bytes)", base.DEC },
	rate = { "uint64", "Rate of a layer (bit/s)", base.DEC },
	start = { "uint64", "Start (us since 1970)", base.DEC },
	type = { "uint8", "Type", base.DEC, TYPES },
	layer = { "uint8", "Layer", base.DEC },
	length = { "uint32", "Bytes of payload", base.DEC },
	window = { "uint32", "Window", base.DEC },
	of = { "uint32", "Bytes of this layer in this window", base.DEC },
	offset = { "uint64", "Offset in the layer", base.DEC },
	due = { "uint64", "Due (us since the start)", base.DEC },
	payload = { "bytes", "Payload" },
	windows = { "uint32", "Windows of the stream", base.DEC },
	offered = { "uint64", "Bytes offered by all layers", base.DEC },
})

local function hello(reader)
	reader:text("magic", 4)
	reader:expect(reader:number("version", 1) == 1, "another version")
	local layers = reader:number("layers", 1)
	reader:expect(layers >= 1 and layers <= 64, "1 to 64 layers")
	reader:expect(reader:number("generated", 1) <= 1, "neither generated nor not")
	reader:zero(1)
	reader:expect(reader:number("window_length", 4) > 0, "windows of no length")
	local longest = reader:number("longest", 4)
	reader:expect(longest >= 1 and longest <= MAX_PAYLOAD, "payloads of 1 to 2^20 bytes")
	reader:number("rate", 8)
	reader:number("start", 8)
	return string.format("hello, %d layers", layers)
end

local function data(reader)
	local layer = reader:number("layer", 1)
	reader:expect(layer < 64, "a layer beyond the last one")
	reader:zero(2)
	local length = reader:number("length", 4)
	local window = reader:number("window", 4)
	local of = reader:number("of", 4)
	local offset = reader:number("offset", 8)
	reader:number("due", 8)
	reader:expect(length >= 1 and length <= MAX_PAYLOAD and length <= of, "a payload of no possible length")
	reader:expect(offset <= UInt64.max() - UInt64(length), "an offset that overflows")
	reader:expect(reader:left_on_wire() == length, "the length is not that of the payload")
	reader:rest("payload")
	return string.format("layer %d, window %d, %d bytes", layer, window, length)
end

local function last(reader)
	reader:zero(7)
	local windows = reader:number("windows", 4)
	reader:zero(4)
	reader:number("offered", 8)
	reader:zero(8)
	return string.format("end after %d windows", windows)
end

local function message(reader)
	local start = reader:peek(0, 4)
	local info
	if start and start:uint() == MAGIC then
		info = hello(reader)
	else
		local kind = reader:number("type", 1)
		if kind == DATA then
			info = data(reader)
		elseif kind == END then
			info = last(reader)
		else
			reader:stop_here("unknown type")
		end
	end
	reader:finish()
	return info
end

local function one(tvb, pinfo, tree)
	local info, reader = polycast.dissect(ldc, tvb, tree, message)
	polycast.columns(pinfo, "LDC", info, reader)
	return tvb:captured_len()
end

-- What is no message of ours is one message up to its end, which is then refused.
local function message_length(tvb, pinfo, offset)
	if tvb(offset, 4):uint() == MAGIC or tvb(offset, 1):uint() == END then
		return HEADER_LEN
	end
	local length = tvb(offset + 4, 4):uint()
	if tvb(offset, 1):uint() ~= DATA or length > MAX_PAYLOAD then
		return tvb:len() - offset
	end
	return HEADER_LEN + length
end

function ldc.proto.dissector(tvb, pinfo, tree)
	dissect_tcp_pdus(tvb, tree, HEADER_LEN, message_length, one)
	return tvb:captured_len()
end

local function heuristic(tvb, pinfo, tree)
	if tvb:captured_len() < 5 or tvb(0, 4):uint() ~= MAGIC or tvb(4, 1):uint() ~= 1 then
		return false
	end
	pinfo.conversation = ldc.proto
	ldc.proto.dissector(tvb, pinfo, tree)
	return true
end

ldc.proto:register_heuristic("tcp", heuristic)
DissectorTable.get("tcp.port"):add_for_decode_as(ldc.proto)
