@testable import HTTPServer

/// Drives a connection's machine without a socket. The path of a request selects its handler: `/now…` responds at once
/// with the path as body, `/stream…` streams the request body, `/unwanted` responds before the body and refuses it, any
/// other path waits for ``respond(to:_:)``.
final class MachineDriver {
    struct Seen: Equatable {
        var path: String
        var body: String
    }

    static let date = Array("Date: now\r\n".utf8)
    static let second: UInt64 = 1_000_000_000

    var machine: ConnectionMachine
    var now: UInt64 = 1_000 * second
    /// The handled requests, in order; a streamed one is added when its body is complete.
    private(set) var seen: [Seen] = []
    private(set) var pieces: [String] = []
    private(set) var completed: [UInt16] = []
    /// The sequence numbers of requests that wait for their response, by path.
    private var sequences: [String: UInt64] = [:]
    private var isStreaming = false
    private var streamed = Seen(path: "", body: "")
    private var lastWrite: UInt64
    var pausesAfterEachPiece = false

    init(_ limits: Limits = Limits()) {
        machine = ConnectionMachine(limits: limits, now: now)
        lastWrite = now
    }

    func receive(_ text: String) {
        machine.input.append(text)
        run()
    }

    func endInput() {
        machine.inputEnded()
        run()
    }

    /// Carries out the machine's steps until it waits.
    func run() {
        while true {
            switch machine.nextStep(now: now) {
            case .wait: return
            case .head: takeHead()
            case .request: handle()
            case .bodyBytes(let range):
                let piece = text(range)
                pieces.append(piece)
                streamed.body += piece
                machine.usedBodyBytes(range, wantsMore: !pausesAfterEachPiece)
            case .bodyEnd:
                seen.append(streamed)
                isStreaming = false
            case .failed(let failure):
                refuse(failure)
            }
        }
    }

    /// The failure of a streamed body is the response to its request; any other failure is a response of its own.
    private func refuse(_ failure: RequestFailure) {
        if isStreaming {
            machine.endAfterLast()
            return send(Response(failure.status), sequences[streamed.path] ?? 0)
        }
        let sequence = machine.begin(
            PendingRequest(
                id: .given("id"), method: .get, isVersion11: true, keepsAlive: false, ifNoneMatch: nil, route: nil,
                startedAt: now, target: nil, response: nil))
        send(Response(failure.status), sequence)
    }

    private func takeHead() {
        let path = text(machine.head.path)
        if path.hasPrefix("/stream") {
            _ = begin(path)
            isStreaming = true
            streamed = Seen(path: path, body: "")
            machine.streamBody(isWanted: true)
        } else if path == "/unwanted" {
            let sequence = begin(path, keepsAlive: machine.head.keepsAlive && machine.head.body == .none)
            send(Response(.forbidden), sequence)
            machine.streamBody(isWanted: false)
        } else {
            machine.readBody()
        }
    }

    private func handle() {
        let path = text(machine.head.path)
        seen.append(Seen(path: path, body: text(machine.bodyRange)))
        let sequence = begin(path)
        if path.hasPrefix("/now") { send(Response(.ok, text: path), sequence) }
        machine.handled(holdsNext: !machine.head.method.isSafe)
    }

    private func begin(_ path: String, keepsAlive: Bool? = nil) -> UInt64 {
        let bytes = machine.input.readableBytes
        let condition = machine.head.value(of: "if-none-match", in: bytes).map { String(decoding: $0, as: UTF8.self) }
        let sequence = machine.begin(
            PendingRequest(
                id: .given("id"), method: machine.head.method, isVersion11: machine.head.isVersion11,
                keepsAlive: keepsAlive ?? machine.head.keepsAlive, ifNoneMatch: condition,
                acceptsGzip: machine.head.acceptsGzip(in: bytes), route: nil, startedAt: now, target: nil,
                response: nil))
        sequences[path] = sequence
        return sequence
    }

    private func send(_ response: Response, _ sequence: UInt64) {
        machine.responses.add(response, to: sequence)
        writeResponses()
    }

    private func writeResponses() {
        while let summary = machine.responses.writeNext(date: Self.date) { completed.append(summary.status.code) }
    }

    /// Responds to the request of this path, by default with the path as body.
    func respond(to path: String, _ response: Response? = nil) {
        guard let sequence = sequences[path] else { return }
        send(response ?? Response(.ok, text: path), sequence)
        run()
    }

    func write(_ text: String, to path: String) {
        guard let sequence = sequences[path] else { return }
        _ = machine.responses.continueStream(.write(Array(text.utf8)), of: sequence, date: Self.date)
    }

    /// - Returns: whether the connection stays open.
    func fail(_ path: String, _ response: Response) -> Bool {
        guard let sequence = sequences[path] else { return false }
        let goesOn = machine.responses.continueStream(.fail(response), of: sequence, date: Self.date)
        writeResponses()
        return goesOn
    }

    func abandon() {
        if let summary = machine.responses.abandon() { completed.append(summary.status.code) }
    }

    func finish(_ path: String) {
        guard let sequence = sequences[path] else { return }
        _ = machine.responses.continueStream(.finish, of: sequence, date: Self.date)
        writeResponses()
        run()
    }

    /// Returns the output since the last call.
    func takeOutput() -> String {
        String(decoding: takeBytes(), as: UTF8.self)
    }

    /// Returns the output since the last call.
    func takeBytes() -> [UInt8] {
        var bytes: [UInt8] = []
        while !machine.responses.output.isEmpty {
            let before = bytes.count
            machine.responses.output.withNextPieces { bytes += [UInt8]($0) + $1 + $2 }
            machine.responses.output.consume(bytes.count - before)
        }
        if !bytes.isEmpty { lastWrite = now }
        return bytes
    }

    /// Sends the stream that responds to a request until its end, if there is one.
    func runStream(of path: String) throws {
        guard let sequence = sequences[path] else { return }
        let target = try PieceTarget()
        while let (source, _) = machine.streamToPull() {
            source.produce(StreamWriter(target: target, sequence: sequence))
            guard let event = target.event.take() else { return }
            _ = machine.responses.continueStream(event, of: sequence, date: Self.date)
            writeResponses()
        }
        run()
    }

    /// Returns the bodies of the responses since the last call; the status of a response without a body.
    func takeResponses() -> [String] {
        takeOutput().components(separatedBy: "HTTP/1.1 ").dropFirst().map { response in
            let parts = response.components(separatedBy: "\r\n\r\n")
            return parts.count > 1 && !parts[1].isEmpty ? parts[1] : String(response.prefix(3))
        }
    }

    /// What the machine waits for, and how many seconds from now.
    var deadline: (reason: ConnectionMachine.Deadline, seconds: Double) {
        let (reason, time) = machine.deadline(lastWrite: lastWrite)
        return (reason, (Double(time) - Double(now)) / Double(Self.second))
    }

    var isIdle: Bool { machine.isIdle }
    var isDone: Bool { machine.isDone }
    var wantsInput: Bool { machine.wantsInput }
    var mayGoOn: Bool { machine.mayGoOn }
    var mustLinger: Bool { machine.mustLinger }
    var owesNothing: Bool { machine.responses.isEmpty }
    /// Bytes of output that were not taken.
    var unsent: Int { machine.responses.output.count }

    /// Pulls the stream, if there is one to pull.
    func pullsStream() -> Bool { machine.streamToPull() != nil }

    func pass(seconds: UInt64) {
        now += seconds * Self.second
    }

    private func text(_ range: Range<Int>) -> String {
        String(decoding: machine.input.readableBytes[slice: range], as: UTF8.self)
    }
}

extension String {
    /// The parts between the separators, including empty ones.
    func components(separatedBy separator: String) -> [String] {
        var parts: [String] = []
        var bytes = utf8[...]
        let pattern = Array(separator.utf8)
        while let range = bytes.firstRange(of: pattern) {
            parts.append(String(decoding: bytes[..<range.lowerBound], as: UTF8.self))
            bytes = bytes[range.upperBound...]
        }
        return parts + [String(decoding: bytes, as: UTF8.self)]
    }
}

/// A request with `Host` and the given fields.
func request(_ method: String, _ path: String, _ fields: String..., body: String = "") -> String {
    "\(method) \(path) HTTP/1.1\r\nHost: a\r\n" + fields.map { $0 + "\r\n" }.joined() + "\r\n" + body
}

func get(_ path: String, _ fields: String...) -> String {
    "GET \(path) HTTP/1.1\r\nHost: a\r\n" + fields.map { $0 + "\r\n" }.joined() + "\r\n"
}

func post(_ path: String, body: String, _ fields: String...) -> String {
    "POST \(path) HTTP/1.1\r\nHost: a\r\nContent-Length: \(body.utf8.count)\r\n"
        + fields.map { $0 + "\r\n" }.joined() + "\r\n" + body
}

/// A stream without any piece.
final class EmptyStream: ResponseStream {
    func produce(_ writer: StreamWriter) {
        writer.finish()
    }
}

/// Keeps what a stream produces.
private final class PieceTarget: ResponseTarget {
    let loop: EventLoop
    var event: StreamEvent?

    init() throws {
        loop = try EventLoop(index: 0)
        loop.adoptThread()
    }

    deinit {
        loop.close()
    }

    func respond(_ response: Response, to sequence: UInt64) {}
    func continueStream(_ event: StreamEvent, of sequence: UInt64) { self.event = event }
    func resumeReading() {}
    func setCaller(_ name: String, of sequence: UInt64) {}
    func setTask(_ task: Task<Void, Never>, of sequence: UInt64) {}
}
