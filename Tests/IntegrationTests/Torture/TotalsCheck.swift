import APITestSupport
import JSON
import ProcessTestSupport

/// Compares the totals of results with a count of all exposures and goal events, after the load has ended.
struct TotalsCheck {
    static let goal = "reached"

    let server: ServerProcess

    /// What results say of one variation.
    private struct Total: Equatable {
        var users = 0
        var crossed = 0
        var forced = 0
        /// Of variations that the experiment still has.
        var events: Int64?
        var converted: Int64?
    }

    /// Checks all experiments of the load.
    func check() throws {
        for experiment in DatafileExperiment.all {
            try eventually { try (results(of: experiment), recount(of: experiment)) }
        }
    }

    /// Checks that nothing is left of users who were erased, in what is stored and in the totals.
    func expectNothing(of users: [String]) throws {
        try eventually {
            let left = try (lines("/v1/exposures") + lines("/v1/events")).compactMap { $0["user_id"].string }
            return (Set(left).intersection(users), [])
        }
        for user in users {
            let response = try server.request("GET", "/v1/profiles/\(user)")
            guard response.status == 404 else { throw TestFailure("\(user) was erased: \(response.text)") }
        }
        try check()
    }

    /// Exposures of decisions are stored after the responses.
    private func eventually<Value: Equatable>(_ values: () throws -> (Value, Value)) throws {
        let deadline = ContinuousClock.now + .seconds(30)
        var (found, expected) = try values()
        while found != expected {
            guard .now < deadline else { throw TestFailure("the totals are \(found), counted: \(expected)") }
            (found, expected) = try values()
        }
    }

    private func lines(_ target: String) throws -> [JSONValue] {
        let response = try server.request("GET", target)
        guard response.status == 200 else { throw TestFailure("\(target): \(response.text)") }
        return try response.text.split(separator: "\n").map { try JSONParser().parse(Array($0.utf8)) }
    }

    private func results(of experiment: DatafileExperiment) throws -> [String: Total] {
        let response = try server.request("GET", "/v1/experiments/\(experiment.key)/results?goal=\(Self.goal)")
        guard response.status == 200 else { throw TestFailure("results: \(response.text)") }
        var totals: [String: Total] = [:]
        for member in ["variations", "removed_variations"] {
            for arm in response[member].array ?? [] {
                func number(_ name: String) -> Int { Int(arm[name].integer ?? -1) }
                let total = Total(
                    users: number("users"), crossed: number("multiple_variations"), forced: number("forced"),
                    events: member == "variations" ? arm["events"].integer : nil,
                    converted: member == "variations" ? arm["converted"].integer : nil)
                if total.users + total.crossed + total.forced > 0 { totals[arm["variation_id"].string ?? ""] = total }
            }
        }
        return totals
    }

    private func recount(of experiment: DatafileExperiment) throws -> [String: Total] {
        let present = Set(
            try server.request("GET", "/v1/experiments/\(experiment.key)")["variations"].array?
                .compactMap { $0["id"].string } ?? [])
        let goals = Dictionary(
            grouping: try lines("/v1/events").filter { $0["goal"].string == Self.goal }, by: { $0["user_id"].string })
        var totals: [String: Total] = [:]
        // Of several lines about one user the last counts.
        let exposures = Dictionary(
            try lines("/v1/exposures").filter { $0["experiment_id"].string == experiment.id }
                .map { ($0["user_id"].string, $0) },
            uniquingKeysWith: { $1 })
        for (user, exposure) in exposures {
            let variation = exposure["variation_id"].string ?? ""
            var total = totals[variation] ?? Total()
            if present.contains(variation) {
                (total.events, total.converted) = (total.events ?? 0, total.converted ?? 0)
            }
            defer { totals[variation] = total }
            // Who is both crossed and forced counts as forced.
            guard exposure["forced"] == false else {
                total.forced += 1
                continue
            }
            guard exposure["multiple_variations"] == false else {
                total.crossed += 1
                continue
            }
            total.users += 1
            guard present.contains(variation) else { continue }
            // Times of equal precision compare as texts.
            let since = exposure["timestamp"].string ?? ""
            let events = (goals[user] ?? []).filter { ($0["timestamp"].string ?? "") >= since }
            total.events = total.events.map { $0 + Int64(events.count) }
            total.converted = total.converted.map { $0 + (events.isEmpty ? 0 : 1) }
        }
        return totals
    }
}
