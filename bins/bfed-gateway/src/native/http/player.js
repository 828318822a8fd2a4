// Plays sessions of a gateway's HTTP server: the page of each server and the status page have this script.
const HLS = "application/vnd.apple.mpegurl";
// Seconds behind the newest frame at which the player jumps forward, and that it keeps of the past.
const MOST_BEHIND = 4, KEPT = 30;
// Attempts to play over MoQ before the stream is read over HTTP.
const MAX_FAILED = 3;

function pause(ms) { return new Promise(done => setTimeout(done, ms)); }
function once(target, event, failure) {
  return new Promise((done, fail) => {
    target.addEventListener(event, done, { once: true });
    target.addEventListener(failure, () => fail(new Error(failure)), { once: true });
  });
}

// Time that a group of MoQ waits for those before it whose heads have not arrived.
const GRACE_MS = 300;

// Longest frame of Media over QUIC (moq-lite-04).
const MAX_FRAME = 16 << 20;

// An integer of QUIC (RFC 9000, section 16).
function varint(value) {
  if (value < 0x40) return [value];
  if (value < 0x4000) return [0x40 | value >> 8, value & 255];
  return [0x80 | value >>> 24, value >>> 16 & 255, value >>> 8 & 255, value & 255];
}
function string(text) { const bytes = new TextEncoder().encode(text); return [...varint(bytes.length), ...bytes]; }

// Reads integers and ranges of bytes from a stream.
class Bytes {
  constructor(stream) { this.reader = stream.getReader(); this.have = new Uint8Array(0); }
  // A stream that is not read to its end would count as open for ever.
  cancel() { this.reader.cancel().catch(() => {}); }
  async fill(count) {
    while (this.have.length < count) {
      const { value, done } = await this.reader.read();
      if (done) return false;
      const both = new Uint8Array(this.have.length + value.length);
      both.set(this.have);
      both.set(value, this.have.length);
      this.have = both;
    }
    return true;
  }
  take(count) { const taken = this.have.slice(0, count); this.have = this.have.subarray(count); return taken; }
  // The next bytes; null at the end of the stream.
  async bytes(count) { return await this.fill(count) ? this.take(count) : null; }
  async varint() {
    if (!await this.fill(1)) return null;
    const count = 1 << (this.have[0] >> 6);
    const bytes = await this.bytes(count);
    if (!bytes) return null;
    return bytes.reduce((value, byte, at) => at ? value * 256 + byte : byte & 63, 0);
  }
  // A frame: its length, and its bytes.
  async frame() {
    const length = await this.varint();
    if (length === null) return null;
    if (length > MAX_FRAME) throw new Error("a frame is too long");
    return this.bytes(length);
  }
}

// Reads a group's head: the type (a group), the length of the head, the subscription, the number of the group, and the header.
async function readHead(stream, heads) {
  if (await stream.varint() !== 0 || !await stream.varint()) return stream.cancel();
  await stream.varint();
  const sequence = await stream.varint();
  const header = await stream.frame();
  // Version, flags, length of the initialisation, initialisation, prefix.
  const isWhole = sequence !== null && header && header.length >= 6 && header[0] === 0;
  if (!isWhole || sequence <= heads.last) return stream.cancel();
  heads.ready.set(sequence, { stream, header, at: performance.now() });
  heads.changed();
}

// Plays one session in a video element until it is stopped.
class Player {
  // `base` is the server's origin, `rest` the session's encoded name with its flow, `token` the query with its token or empty;
  // `on.named(session)` and `on.state(text, isBad)` are called with text from outside.
  constructor(video, base, rest, token, on) {
    Object.assign(this, { video, base, rest, token, on, mode: "", failed: 0, isStopped: false });
    this.stopped = new Promise(done => { this.stop = () => { this.isStopped = true; done(); }; });
    this.stopped.then(() => { video.pause(); video.removeAttribute("src"); video.load(); });
    video.ontimeupdate = () => on.state(`${this.mode}, ${video.videoWidth} × ${video.videoHeight}, ${video.currentTime.toFixed(1)} s`, false);
    this.run();
  }

  // The signal of `abort`, which a stop aborts, too.
  aborted(abort) {
    this.stopped.then(() => abort.abort());
    return abort.signal;
  }

  // Follows the newest frame, and starts at the first one.
  follow() {
    const ranges = this.video.buffered;
    if (!ranges.length) return;
    const first = ranges.start(ranges.length - 1), last = ranges.end(ranges.length - 1);
    if (this.video.currentTime < first || (!this.video.paused && last - this.video.currentTime > MOST_BEHIND)) {
      this.video.currentTime = Math.max(first, last - MOST_BEHIND / 4);
    }
  }

  // The stream itself through Media Source: fragmented MP4 and WebM.
  async playStream(mime) {
    this.mode = "stream";
    const source = new MediaSource(), abort = new AbortController();
    const url = URL.createObjectURL(source);
    this.video.src = url;
    try {
      await once(source, "sourceopen", "sourceclose");
      const buffer = source.addSourceBuffer(mime);
      const answer = await fetch(this.base + "/s/" + this.rest + this.token, { cache: "no-store", signal: this.aborted(abort) });
      if (!answer.ok) throw new Error(await answer.text());
      const reader = answer.body.getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        // The next piece is read once this one is in the buffer, which never holds more than the past below.
        buffer.appendBuffer(value);
        await once(buffer, "updateend", "error");
        this.follow();
        if (buffer.buffered.length && this.video.currentTime - buffer.buffered.start(0) > 2 * KEPT) {
          buffer.remove(0, this.video.currentTime - KEPT);
          await once(buffer, "updateend", "error");
        }
      }
    } finally {
      abort.abort();
      URL.revokeObjectURL(url);
    }
  }

  // Media over QUIC (moq-lite-04) through Media Source.
  async playMoq(moq, mime) {
    this.mode = "MoQ";
    const options = { protocols: ["moq-lite-04"], congestionControl: "low-latency" };
    if (moq.certificate) {
      const value = new Uint8Array(moq.certificate.match(/../g).map(byte => parseInt(byte, 16)));
      options.serverCertificateHashes = [{ algorithm: "sha-256", value }];
    }
    const server = new URL("/" + this.token, this.base);
    server.protocol = "https";
    server.port = moq.port;
    const transport = new WebTransport(server.href, options);
    const source = new MediaSource();
    const url = URL.createObjectURL(source);
    this.video.src = url;
    try {
      transport.closed.catch(() => {});
      this.stopped.then(() => transport.close());
      await Promise.all([once(source, "sourceopen", "sourceclose"), transport.ready]);
      if (transport.protocol !== "moq-lite-04") throw new Error("this browser does not negotiate moq-lite");
      const buffer = source.addSourceBuffer(mime);
      // SUBSCRIBE: identifier, broadcast, track, priority, order, greatest age in ms, from the newest group on, without an end.
      const control = await transport.createBidirectionalStream();
      const message = [0, ...string(moq.broadcast), ...string(moq.track), 128, 0, ...varint(1000), 0, 0];
      await control.writable.getWriter().write(new Uint8Array([2, ...varint(message.length), ...message]));
      const answer = new Bytes(control.readable);
      await Promise.race([this.readGroups(transport, buffer), (async () => {
        while (await answer.frame());
        throw new Error("the session has ended");
      })()]);
    } finally {
      transport.close();
      URL.revokeObjectURL(url);
    }
  }

  // Appends groups in their order. A group that arrives after a later one was begun is left out, and so is one whose head stalls:
  // the heads are read side by side.
  async readGroups(transport, buffer) {
    const streams = transport.incomingUnidirectionalStreams.getReader();
    // Groups whose heads have arrived, by number, and the number of the one that was begun last.
    const heads = { ready: new Map(), last: -1, changed: () => {} };
    const arriving = (async () => {
      for (;;) {
        const { value, done } = await streams.read();
        if (done) return;
        const stream = new Bytes(value);
        // The failure of one group is that of its stream.
        readHead(stream, heads).catch(() => stream.cancel());
      }
    })();
    await Promise.race([arriving, this.appendGroups(heads, buffer)]);
  }

  async appendGroups(heads, buffer) {
    let whole = -1;
    for (;;) {
      const changed = new Promise(done => heads.changed = done);
      const sequence = Math.min(...heads.ready.keys());
      const group = heads.ready.get(sequence);
      if (!group) { await changed; continue; }
      const left = group.at + GRACE_MS - performance.now();
      if (heads.last >= 0 && sequence > heads.last + 1 && left > 0) { await Promise.race([changed, pause(left)]); continue; }
      heads.ready.delete(sequence);
      heads.last = sequence;
      // What cannot be appended ends the player; other failures are those of the group's stream.
      whole = await this.readGroup(group, sequence, whole, buffer).catch(error => { if (error.isFatal) throw error; return whole; });
    }
  }

  // Returns the number of the last group that was appended as a whole.
  async readGroup({ stream, header }, sequence, whole, buffer) {
    const follows = sequence === whole + 1;
    if (!follows && !(header[1] & 1)) { stream.cancel(); return whole; }
    if (!follows && header.length > 6) await this.append(buffer, header.subarray(6));
    for (;;) {
      const frame = await stream.frame();
      if (!frame) return sequence;
      if (frame.length) await this.append(buffer, frame);
    }
  }

  async append(buffer, bytes) {
    try {
      buffer.appendBuffer(bytes);
      await once(buffer, "updateend", "error");
      this.follow();
      if (buffer.buffered.length && this.video.currentTime - buffer.buffered.start(0) > 2 * KEPT) {
        buffer.remove(0, this.video.currentTime - KEPT);
        await once(buffer, "updateend", "error");
      }
    } catch (error) {
      error.isFatal = true;
      throw error;
    }
  }

  // HLS, where the browser plays it by itself.
  async playHls(url) {
    this.mode = "HLS";
    this.video.src = url;
    this.video.load();
    let timer = 0;
    const stuck = new Promise((_, fail) => {
      // A player that has stood still for long starts again.
      let last = -1, still = 0;
      timer = setInterval(() => {
        still = this.video.currentTime === last && !this.video.paused ? still + 1 : 0;
        last = this.video.currentTime;
        if (still > 20) fail(new Error("nothing more comes"));
      }, 1000);
    });
    try {
      await Promise.race([once(this.video, "ended", "error"), stuck, this.stopped]);
    } finally {
      clearInterval(timer);
    }
  }

  async play() {
    const answer = await fetch(this.base + "/info/" + this.rest + this.token, { cache: "no-store" });
    if (!answer.ok) throw new Error((await answer.text()).trim());
    const info = await answer.json();
    this.on.named(info.session);
    const hasSource = info.mime && window.MediaSource && MediaSource.isTypeSupported(info.mime);
    if (hasSource && info.moq && window.WebTransport && this.failed < MAX_FAILED) {
      try {
        return await this.playMoq(info.moq, info.mime);
      } catch (error) {
        this.failed += 1;
        throw error;
      }
    }
    if (hasSource) return this.playStream(info.mime);
    if (info.hls && this.video.canPlayType(HLS)) return this.playHls(this.base + info.hls + this.token);
    if (info.container) throw new Error("This browser does not play " + (info.mime || "MPEG-TS over HLS") + ".");
    throw new Error("The stream has not begun, or is no video.");
  }

  async run() {
    while (!this.isStopped) {
      let text = "the stream has ended; trying again";
      try {
        await this.play();
      } catch (error) {
        // A request that fails, or whose answer another page may not read, has no text of its own.
        const why = error instanceof TypeError ? "The server does not answer, or refuses the session." : error.message;
        text = why + " Trying again.";
      }
      if (this.isStopped) return;
      this.on.state(text, true);
      await Promise.race([pause(2000), this.stopped]);
    }
  }
}
