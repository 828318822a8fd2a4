-- What the dissectors of polycast share: declaring a protocol, and reading a packet field by field.
-- It registers nothing, so Wireshark may load it as a plugin of its own, before or after the others.

local polycast = { version = "0.1.0" }

-- What Reader raises when it is out of bytes; everything else that is raised is a bug of ours.
local CUT = {}

-- A protocol "polycast.KEY" with fields "polycast.KEY.NAME"; `fields` is
-- { NAME = { kind, label, further arguments of ProtoField[kind] } }.
function polycast.protocol(key, description, fields)
	local abbreviation = "polycast." .. key
	local proto = Proto(abbreviation, description)
	local declared = {}
	for name, field in pairs(fields) do
		local create = ProtoField[field[1]]
		declared[name] = create(abbreviation .. "." .. name, field[2], table.unpack(field, 3))
	end
	proto.fields = declared
	local malformed = ProtoExpert.new(abbreviation .. ".malformed", "Malformed: polycast drops it",
		expert.group.MALFORMED, expert.severity.ERROR)
	local cut = ProtoExpert.new(abbreviation .. ".not_captured", "Cut short by the capture",
		expert.group.UNDECODED, expert.severity.NOTE)
	proto.experts = { malformed, cut }
	return { proto = proto, fields = declared, malformed = malformed, cut = cut }
end

local Reader = {}
Reader.__index = Reader

-- A reader of `tvb` from `from` (0) up to `stop` (its end), which adds to `tree`.
function polycast.reader(protocol, tvb, tree, from, stop)
	return setmetatable({
		protocol = protocol,
		tvb = tvb,
		tree = tree,
		at = from or 0,
		stop = stop or tvb:captured_len(),
		-- Bytes that were on the wire and are not in the capture.
		missing = stop and 0 or tvb:reported_len() - tvb:captured_len(),
	}, Reader)
end

-- Bytes that are left.
function Reader:left()
	return self.stop - self.at
end

-- Bytes that were left on the wire.
function Reader:left_on_wire()
	return self.stop - self.at + self.missing
end

-- Says that a polycast program drops the packet, and why.
function Reader:refuse(why)
	self.refused = true
	self.tree:add_proto_expert_info(self.protocol.malformed, "Malformed: " .. why)
end

function Reader:expect(holds, why)
	if not holds then
		self:refuse(why)
	end
end

-- Ends the dissection: what follows makes no sense.
function Reader:stop_here(why)
	self:refuse(why)
	error(CUT, 0)
end

-- The next `len` bytes.
function Reader:range(len)
	if len > self:left() then
		if len <= self:left_on_wire() then
			self.tree:add_proto_expert_info(self.protocol.cut)
			error(CUT, 0)
		end
		self:stop_here("cut short, " .. len .. " bytes expected and " .. self:left() .. " there")
	end
	local range = self.tvb(self.at, len)
	self.at = self.at + len
	return range
end

-- Bytes that are looked at, not taken: `nil` where they are not there.
function Reader:peek(ahead, len)
	if ahead + len > self:left() then
		return nil
	end
	return self.tvb(self.at + ahead, len)
end

-- The number of `len` bytes that comes next, and its item; UInt64 where `len` is 8.
function Reader:number(name, len)
	local range = self:range(len)
	local item = self.tree:add(self.protocol.fields[name], range)
	return len == 8 and range:uint64() or range:uint(), item
end

-- A field of any other kind.
function Reader:field(name, len)
	local range = self:range(len)
	return range, self.tree:add(self.protocol.fields[name], range)
end

function Reader:text(name, len)
	local range = self:range(len)
	return range, self.tree:add_packet_field(self.protocol.fields[name], range, ENC_UTF_8)
end

-- The byte just read again, as other fields: its bits.
function Reader:bits(names)
	local range = self.tvb(self.at - 1, 1)
	for _, name in ipairs(names) do
		self.tree:add(self.protocol.fields[name], range)
	end
end

-- Version and type that share the next byte, four bits each.
function Reader:version_and_type()
	local range = self:range(1)
	self.tree:add(self.protocol.fields.version, range)
	self.tree:add(self.protocol.fields.type, range)
	return range:bitfield(0, 4), range:bitfield(4, 4)
end

-- Whether all bytes of a range are 0.
function polycast.is_zero(range)
	return not range:bytes():tohex():find("[^0]")
end

-- Reserved bytes: 0.
function Reader:zero(len)
	if len > 0 then
		self:expect(polycast.is_zero(self:range(len)), "reserved bytes are not 0")
	end
end

-- A part of the packet as a branch of the tree; `read` gets a reader of it.
function Reader:branch(label, read)
	local from = self.at
	local tree = self.tree
	local item = tree:add(self.tvb(from, 0), label)
	self.tree = item
	read(self, item)
	self.tree = tree
	item:set_len(self.at - from)
	return item
end

-- A reader of the next `len` bytes alone, in the same branch.
function Reader:part(len)
	local from = self.at
	self:range(len)
	return polycast.reader(self.protocol, self.tvb, self.tree, from, self.at)
end

-- All that is left as one field, what the capture lacks of it too.
function Reader:rest(name)
	local wire = self:left_on_wire()
	if self:left() > 0 then
		self:field(name, self:left())
	end
	self.missing = 0
	return wire
end

-- Nothing may follow.
function Reader:finish()
	local left = self:left_on_wire()
	self:expect(left == 0, left .. " bytes more than there should be")
end

-- Dissects `tvb` with `read(reader, item)`; what `read` returns, or nil where it was cut short.
function polycast.dissect(protocol, tvb, tree, read)
	local item = tree:add(protocol.proto, tvb())
	local reader = polycast.reader(protocol, tvb, item)
	local fine, result = pcall(read, reader, item)
	if fine then
		return result, reader
	end
	if result ~= CUT then
		error(result, 0)
	end
	return nil, reader
end

-- Sets the columns of the packet list.
function polycast.columns(pinfo, name, info, reader)
	pinfo.cols.protocol = name
	pinfo.cols.info = polycast.summary(info, reader)
end

-- The text for the info column; a packet that is refused says so.
function polycast.summary(info, reader)
	if reader.refused then
		return (info or "?") .. " [malformed]"
	end
	return info or "? [cut short by the capture]"
end

return polycast
