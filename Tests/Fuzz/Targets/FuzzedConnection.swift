@testable import HTTPServer

/// A connection's machine with handlers that respond at once: `/stream…` streams the request body, `/unwanted` responds
/// before the body, any other path buffers it.
struct FuzzedConnection: ~Copyable {
    struct Outcome: Equatable {
        /// Method, path, query and body of each request.
        var requests: [String] = []
        var statuses: [UInt16] = []
    }

    private static let date = Array("Date: now\r\n".utf8)

    private var machine: ConnectionMachine
    private var outcome = Outcome()
    /// The streamed request in progress, with the body so far.
    private var streamed: (sequence: UInt64, request: String, body: [UInt8])?

    private init() {
        var limits = Limits()
        limits.headerBytes = 1_024
        limits.headerFields = 12
        limits.bodyBytes = 512
        limits.pipelinedRequests = 4
        limits.bufferedOutputBytes = 600
        machine = ConnectionMachine(limits: limits, now: 1)
    }

    static func outcome(of bytes: [UInt8], cuts: [Int]) throws -> Outcome {
        var connection = FuzzedConnection()
        var start = 0
        for end in cuts {
            machineReceives(bytes[start..<end], &connection)
            start = end
        }
        connection.machine.inputEnded()
        connection.run()
        guard connection.machine.isDone else { throw Finding("the input has ended and the connection still waits") }
        return connection.outcome
    }

    private static func machineReceives(_ piece: ArraySlice<UInt8>, _ connection: inout FuzzedConnection) {
        connection.machine.input.append(Array(piece))
        connection.run()
    }

    /// Carries out the machine's steps and takes its output, as a fast reader does, until it waits.
    private mutating func run() {
        repeat {
            machine.responses.output.consume(machine.responses.output.count)
            while step() {}
        } while !machine.responses.output.isEmpty
    }

    private mutating func step() -> Bool {
        switch machine.nextStep(now: 1) {
        case .wait: return false
        case .head: takeHead()
        case .request: handle()
        case .bodyBytes(let range):
            streamed?.body += machine.input.readableBytes[slice: range]
            machine.usedBodyBytes(range, wantsMore: true)
        case .bodyEnd: endStream()
        case .failed(let failure): refuse(failure)
        }
        return true
    }

    private mutating func takeHead() {
        let path = text(machine.head.path)
        if path.hasPrefix("/stream") {
            let request = description(body: 0..<0)
            streamed = (begin(), request, [])
            machine.streamBody(isWanted: true)
        } else if path == "/unwanted" {
            outcome.requests.append(description(body: 0..<0))
            let keepsAlive = machine.head.keepsAlive && machine.head.body == .none
            respond(begin(keepsAlive: keepsAlive), Response(.forbidden))
            machine.streamBody(isWanted: false)
        } else {
            machine.readBody()
        }
    }

    private mutating func handle() {
        outcome.requests.append(description(body: machine.bodyRange))
        respond(begin(), Response(.ok, entityTag: EntityTag(1), body: .bytes([0x61])))
        machine.handled(holdsNext: !machine.head.method.isSafe)
    }

    private mutating func endStream() {
        guard let streamed else { return }
        self.streamed = nil
        outcome.requests.append(streamed.request + String(decoding: streamed.body, as: UTF8.self))
        respond(streamed.sequence, Response(.ok, text: "streamed"))
    }

    private mutating func refuse(_ failure: RequestFailure) {
        if let streamed {
            self.streamed = nil
            machine.endAfterLast()
            return respond(streamed.sequence, Response(failure.status))
        }
        let sequence = machine.begin(
            PendingRequest(
                id: .given("id"), method: .get, isVersion11: true, keepsAlive: false, ifNoneMatch: nil, route: nil,
                startedAt: 1, target: nil, response: nil))
        respond(sequence, Response(failure.status))
    }

    private mutating func begin(keepsAlive: Bool? = nil) -> UInt64 {
        let head = machine.head
        let condition = head.value(of: "if-none-match", in: machine.input.readableBytes)
        return machine.begin(
            PendingRequest(
                id: .given("id"), method: head.method, isVersion11: head.isVersion11,
                keepsAlive: keepsAlive ?? head.keepsAlive,
                ifNoneMatch: condition.map { String(decoding: $0, as: UTF8.self) }, route: nil, startedAt: 1,
                target: nil, response: nil))
    }

    private mutating func respond(_ sequence: UInt64, _ response: Response) {
        machine.responses.add(response, to: sequence)
        while let summary = machine.responses.writeNext(date: Self.date) {
            outcome.statuses.append(summary.status.code)
        }
    }

    private func description(body: Range<Int>) -> String {
        "\(machine.head.method.name) \(text(machine.head.path)) \(text(machine.head.query)) \(text(body))"
    }

    private func text(_ range: Range<Int>) -> String {
        String(decoding: machine.input.readableBytes[slice: range], as: UTF8.self)
    }
}
