import APITestSupport
import Glibc
import JSON

/// A client that asks for one random thing after the other, and writes down what it was told.
// Safe: only one thread at a time uses it, that of the load or that which has waited for the load's end.
final class LoadClient: @unchecked Sendable {
    let number: Int
    /// In the order in which it asked. An operation without a response has not returned (`UInt64.max`).
    var history: [HistoryEvent] = []
    private let users: [String]
    /// Whether it asks again for what it was refused, until it is done; only if nobody else changes its users.
    private let insists: Bool
    private let limit: Int
    /// Whether an operation can no longer happen once its connection is cut, because the server that commits it is dead.
    private let cutsEndOperations: Bool
    /// Whether it joins users, each with the one of ``companion(of:)``.
    private let merges: Bool
    /// Whether it changes which variations there are, not only their weights, and how often: of a thousand operations.
    private let experimentChanges: (variations: Bool, thousandths: Int)
    /// In the order in which it asked.
    private(set) var experimentHistory: [ExperimentChange] = []
    private var generator: OperationGenerator

    /// - Parameter limit: operations that it makes; it stops earlier when the load is over.
    init(
        number: Int, seed: UInt64, users: [String], insists: Bool, limit: Int = .max, changesVariations: Bool = false,
        merges: Bool = false, cutsEndOperations: Bool = false, expires: Bool = false
    ) {
        self.number = number
        self.users = users
        self.insists = insists
        self.limit = limit
        self.merges = merges
        self.cutsEndOperations = cutsEndOperations
        experimentChanges = changesVariations ? (true, 100) : (false, 10)
        generator = OperationGenerator(client: number, seed: seed, expires: expires)
    }

    /// Works until the load is over or no server can be reached.
    func work(on ports: [UInt16], in load: Load) {
        var connections = ports.compactMap { try? HTTPClient(port: $0) }
        var made = 0
        while !load.isOver, !connections.isEmpty, made < limit {
            made += 1
            let index = Int(generator.element(of: Array(connections.indices)))
            let first = history.count
            do {
                try workOnce(on: connections[index], in: load)
            } catch let wrong as WrongResponse {
                load.count { $0.wrong.append(wrong.description) }
                return
            } catch {
                let connection = connections.remove(at: index)
                if cutsEndOperations {
                    for place in history[first...].indices { end(place, .nothing) }
                }
                load.count { counts in
                    counts.cut += 1
                    if connection.wasReset { counts.reset += 1 }
                    if connection.isWithinResponse { counts.wrong.append("a response was cut short: \(error)") }
                }
            }
        }
    }

    private func workOnce(on connection: HTTPClient, in load: Load) throws {
        if generator.chance(25) {
            try importUsers(on: connection, in: load)
        } else if generator.chance(50) {
            try reachGoal(on: connection, in: load)
        } else if generator.chance(experimentChanges.thousandths) {
            try changeExperiment(on: connection, in: load)
        } else if merges, generator.chance(200) {
            let place = generator.element(of: Array(users.indices))
            let operation = generator.operation(with: users[Self.companion(of: place)])
            try perform(operation, for: users[place], on: connection, in: load)
        } else {
            try perform(generator.operation(), for: generator.element(of: users), on: connection, in: load)
        }
    }

    /// The place of the user with whom the one in this place is merged, either into the other.
    static func companion(of place: Int) -> Int { place ^ 1 }

    /// Asks, and writes down the response. When the connection ends before it there is none.
    private func perform(
        _ operation: Operation, for user: String, on connection: HTTPClient, in load: Load
    ) throws {
        let place = begin(operation, for: user)
        let request = operation.request(for: user)
        var tries = 0
        while true {
            let response = try connection.request(
                request.method, request.target, request.body, fields: DatafileExperiment.fields)
            tries += 1
            let observation = try operation.observation(in: response)
            guard observation == .nothing else {
                end(place, tries == 1 ? observation : observation.ofRepetition)
                return load.count { counts in
                    counts.answered += 1
                    if !operation.changesNothing { counts.acknowledged += 1 }
                }
            }
            load.count { $0.refused += 1 }
            // It may have happened: once more would remove the assignment beneath the override.
            if case .remove = operation { return try waitUntilReady(connection, in: load) }
            if !insists || load.isOver { return try waitUntilReady(connection, in: load) }
            usleep(3_000)
        }
    }

    /// Waits after a refusal that may nevertheless have been carried out: with too many of these at the same time, the check
    /// of a history would not end.
    private func waitUntilReady(_ connection: HTTPClient, in load: Load) throws {
        while !load.isOver, try connection.request("GET", "/readyz", nil).status != 200 { usleep(3_000) }
    }

    /// Saves a part of each of the users in one request, which as a whole is answered once.
    private func importUsers(on connection: HTTPClient, in load: Load) throws {
        let maps = users.map { ($0, generator.map()) }
        let places = maps.map { begin(.save($0.1), for: $0.0) }
        let body = maps.map { Operation.body($0.1, of: $0.0) }.joined(separator: "\n")
        while true {
            let response = try connection.request("POST", "/v1/profiles", body)
            if response.status == 200, response["imported"] == .integer(Int64(maps.count)) {
                for place in places { end(place, .acknowledgement) }
                return load.count { counts in
                    counts.answered += 1
                    counts.acknowledged += 1
                }
            }
            guard response.status == 503 else { throw WrongResponse(description: "import: \(response.text)") }
            load.count { $0.refused += 1 }
            if !insists || load.isOver { return try waitUntilReady(connection, in: load) }
            usleep(3_000)
        }
    }

    /// Reports that a user reached the goal of ``TotalsCheck``, sometimes twice; no profile shows it.
    private func reachGoal(on connection: HTTPClient, in load: Load) throws {
        let id = "c\(number)g\(generator.element(of: Array(0..<50)))"
        let body =
            "{\"id\":\"\(id)\",\"user_id\":\"\(generator.element(of: users))\",\"goal\":\"\(TotalsCheck.goal)\"}"
        let response = try connection.request("POST", "/v1/events", body)
        guard [200, 503].contains(response.status) else {
            throw WrongResponse(description: "goal: \(response.status) \(response.text)")
        }
    }

    /// Which variation most new users get is of no consequence to those who have one.
    private func changeExperiment(on connection: HTTPClient, in load: Load) throws {
        let experiment = generator.element(of: DatafileExperiment.all)
        if experimentChanges.variations { return try changeVariations(of: experiment, on: connection) }
        let definition = experiment.definition(favouring: generator.element(of: [0, 1, 2]))
        let response = try connection.request("PUT", "/v1/experiments/\(experiment.key)", definition)
        guard [200, 409, 503].contains(response.status) else {
            throw WrongResponse(description: "experiment: \(response.status) \(response.text)")
        }
    }

    /// Who has a variation that is left out gets another one, and nobody else does.
    private func changeVariations(of experiment: DatafileExperiment, on connection: HTTPClient) throws {
        let variations = generator.nonEmptySubset(of: experiment.variations)
        let begin = monotonicNanoseconds()
        func note(_ end: UInt64, revision: Int?) {
            experimentHistory.append(
                ExperimentChange(
                    experiment: experiment.id, variations: variations, invokedAt: begin, returnedAt: end,
                    revision: revision))
        }
        let response: TestResponse
        do {
            let target = "/v1/experiments/\(experiment.key)" + (generator.chance(600) ? "?moves=allow" : "")
            response = try connection.request("PUT", target, experiment.definition(of: variations))
        } catch {
            note(.max, revision: nil)
            throw error
        }
        switch response.status {
        case 200: note(monotonicNanoseconds(), revision: response["revision"].string.flatMap { Int($0) })
        case 503: note(.max, revision: nil)
        case 409: break
        default: throw WrongResponse(description: "experiment: \(response.status) \(response.text)")
        }
    }

    private func begin(_ operation: Operation, for user: String) -> Int {
        history.append(
            HistoryEvent(
                client: number, user: user, operation: operation, invokedAt: monotonicNanoseconds(), returnedAt: .max,
                observation: .nothing))
        return history.count - 1
    }

    private func end(_ place: Int, _ observation: Observation) {
        history[place].returnedAt = monotonicNanoseconds()
        history[place].observation = observation
    }
}

/// The clock of all histories.
func monotonicNanoseconds() -> UInt64 {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
}
