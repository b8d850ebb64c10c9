import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Synchronization
import TestSupport

/// What clients of edges and of the upstream were told, and whether the upstream's feed explains it.
///
/// The feed has every state in which a user has been, in order. Each response must show one of them: of the upstream one
/// that was there during the request, of an edge perhaps an older one; but no process of an edge goes back to a state
/// before one that it has shown. So nobody is ever given a variation that the upstream did not give.
struct EdgeHistory: Sendable {
    struct Event: Sendable {
        let user: String
        let server: String
        let invokedAt: UInt64
        let returnedAt: UInt64
        let variation: String?
    }

    /// A variation, and when the watch saw that it had been stored; the feed is read again and again, so a little later.
    struct State: Sendable {
        let seenAt: UInt64
        let variation: String?
        /// When the watch last began to read before. An erasure takes back states since then, which the watch has not seen:
        /// also those before a merge into the erased user.
        var unseenSince: UInt64 = 0
        var isErasure = false
    }

    /// How late the watch may see a state, and an edge may show one that was taken back, in nanoseconds.
    static let delay: UInt64 = 20_000_000_000

    var events: [Event] = []
    var states: [String: [State]] = [:]

    /// What cannot be explained.
    func violations() -> [String] {
        Dictionary(grouping: events, by: \.user).flatMap { user, events in
            let states = [State(seenAt: 0, variation: nil)] + (states[user] ?? [])
            return Dictionary(grouping: events, by: \.server).flatMap { server, events in
                Self.violations(events.sorted { $0.returnedAt < $1.returnedAt }, states)
            }
        }
    }

    private static func violations(_ events: [Event], _ states: [State]) -> [String] {
        var violations: [String] = []
        var shown: [(returnedAt: UInt64, state: Int)] = []
        for event in events {
            // What was shown before the request began.
            let first = shown.lazy.filter { $0.returnedAt < event.invokedAt }.map(\.state).max() ?? 0
            let late = event.server.hasPrefix("upstream") ? 0 : delay
            func matches(_ state: State) -> Bool {
                state.variation == event.variation && state.seenAt <= event.returnedAt &+ delay
            }
            let found = states.indices[first...].first { index in
                let state = states[index]
                return matches(state)
                    || state.isErasure && state.unseenSince <= event.returnedAt
                        && event.invokedAt <= state.seenAt &+ late
            }
            if let found {
                // What was taken back was before the erasure.
                shown.append((event.returnedAt, matches(states[found]) ? found : max(first, found - 1)))
            } else {
                let all = states.map { $0.variation ?? "none" }.joined(separator: ", ")
                violations.append(
                    "\(event.server) gave \(event.user) \(event.variation ?? "none") after state \(first) of \(all)")
            }
        }
        return violations
    }
}

/// Follows the upstream's feed from its beginning, also while the upstream is restarted.
final class FeedWatch: Sendable {
    private struct Found {
        var states: [String: [EdgeHistory.State]] = [:]
        /// The users who became part of another, and the numbers of the states in which they did.
        var parts: [String: [(user: String, state: Int)]] = [:]
        var cursor: String?
        /// When the last read began.
        var readAt: UInt64 = 0
        var isEnding = false
        var isStopped = false
        /// When the last read began that brought nothing.
        var endedAt: UInt64 = 0

        /// Takes a line of the feed.
        mutating func take(_ line: JSONObject, at now: UInt64) {
            cursor = line["cursor"]?.string
            guard let user = line["user_id"]?.string else { return }
            switch line["kind"]?.string {
            case "erasure":
                states[user, default: []].append(
                    .init(seenAt: now, variation: nil, unseenSince: readAt, isErasure: true))
                for part in parts.removeValue(forKey: user) ?? [] { states[part.user]?[part.state].isErasure = true }
            case "merge":
                guard let other = line["from"]?.string else { return }
                let state = states[other]?.count ?? 0
                states[other, default: []].append(.init(seenAt: now, variation: nil, unseenSince: readAt))
                parts[user, default: []] += (parts.removeValue(forKey: other) ?? []) + [(other, state)]
            default:
                guard line["experiment_id"]?.string == "7001" else { return }
                states[user, default: []].append(.init(seenAt: now, variation: line["variation_id"]?.string))
            }
        }
    }

    private let found = Mutex(Found())
    private let upstream: @Sendable () -> ServerProcess
    private let ended = DispatchGroup()

    init(_ upstream: @escaping @Sendable () -> ServerProcess) {
        self.upstream = upstream
        ended.enter()
        Thread.detachNewThread { [self] in
            while read() {}
            ended.leave()
        }
    }

    private func read() -> Bool {
        let (cursor, isEnding, isStopped) = found.withLock { ($0.cursor, $0.isEnding, $0.isStopped) }
        guard !isStopped else { return false }
        let target =
            "/v1/feed?kinds=assignment,merge,erasure&limit=10000&after=\(cursor ?? "oldest")&wait=\(isEnding ? 0 : 1)"
        let began = DispatchTime.now().uptimeNanoseconds
        guard let response = try? upstream().request("GET", target) else { return true }
        guard response.status == 200 else {
            // The upstream was restored, and everything of its former feed was read; see ``waitForEnd()``. The feed of the
            // new generation goes on where that ended.
            if response.status == 410, let cursor, let epoch = epoch() {
                found.withLock { $0.cursor = epoch + cursor.drop { $0 != "-" } }
            }
            return true
        }
        let now = DispatchTime.now().uptimeNanoseconds
        let lines = response.text.split(separator: "\n").compactMap { try? JSONParser().parse(String($0)).object }
        found.withLock { found in
            for line in lines { found.take(line, at: now) }
            found.readAt = began
            if lines.count == 1 { found.endedAt = began }
        }
        // The last line is the end.
        return !isEnding || lines.count > 1
    }

    /// Returns the generation of the upstream's feed, with which its cursors begin.
    private func epoch() -> String? {
        let end = try? upstream().request("GET", "/v1/feed?limit=0&after=now").json["cursor"].string
        return end.flatMap { $0 }.map { String($0.prefix { $0 != "-" }) }
    }

    /// Waits until everything was read that the present upstream has.
    func waitForEnd() throws {
        let began = DispatchTime.now().uptimeNanoseconds
        let deadline = ContinuousClock.now + .seconds(60)
        while found.withLock({ $0.endedAt < began }) {
            guard .now < deadline else { throw TestFailure("the feed has no end") }
            usleep(1_000)
        }
    }

    /// Reads nothing further: a thread of a test that has failed would keep the servers running.
    func stop() {
        found.withLock { $0.isStopped = true }
        ended.wait()
    }

    /// Reads what is left.
    func end() -> [String: [EdgeHistory.State]] {
        found.withLock { $0.isEnding = true }
        ended.wait()
        return found.withLock { $0.states }
    }
}

/// Clients who ask for the variations of few users, and change them, at servers that come and go.
final class EdgeLoad: Sendable {
    private struct State {
        var history: [EdgeHistory.Event] = []
        var answered = 0
        /// Responses that say that nothing was stored: the upstream was away.
        var unstored = 0
        var failed: [String] = []
        var isEnding = false
        /// The ids of goals that were acknowledged.
        var goals: [String] = []
        var nextGoal = 0
    }

    private let state = Mutex(State())
    /// Named by their processes.
    private let servers: Mutex<[(name: String, server: ServerProcess)]>
    private let ended = DispatchGroup()
    static let users = (0..<24).map { "user\($0)" }

    init(clients: Int, seed: UInt64, on servers: [(name: String, server: ServerProcess)]) {
        self.servers = Mutex(servers)
        for client in 0..<clients {
            ended.enter()
            Thread.detachNewThread { [self] in
                var random = SeededGenerator(seed: seed &* 1_000_003 &+ UInt64(client))
                while !state.withLock(\.isEnding) { step(&random) }
                ended.leave()
            }
        }
    }

    /// Another process serves in place of one.
    func replace(_ index: Int, _ name: String, _ server: ServerProcess) {
        servers.withLock { $0[index] = (name, server) }
    }

    var answered: Int { state.withLock(\.answered) }

    /// Waits for further responses, at most a minute.
    func wait(for count: Int) throws {
        let goal = answered + count
        let deadline = ContinuousClock.now + .seconds(60)
        while answered < goal {
            guard .now < deadline else { throw TestFailure("clients get no responses") }
            usleep(1_000)
        }
    }

    func end() -> (history: [EdgeHistory.Event], unstored: Int, goals: [String], failed: [String]) {
        state.withLock { $0.isEnding = true }
        ended.wait()
        return state.withLock { ($0.history, $0.unstored, $0.goals, $0.failed) }
    }

    /// Reports a goal of a user whom nobody erases.
    private func buy(at server: ServerProcess) throws {
        let number = state.withLock { state in
            state.nextGoal += 1
            return state.nextGoal
        }
        let goal = #"{"id":"g\#(number)","user_id":"buyer\#(number % 8)","goal":"bought"}"#
        let response = try server.request("POST", "/v1/events", goal)
        state.withLock { state in
            if response.status == 200 {
                state.goals.append("g\(number)")
            } else if ![503, 504].contains(response.status) {
                state.failed.append(response.text)
            }
        }
    }

    private func step(_ random: inout SeededGenerator) {
        // A client that asks without a pause makes more than the servers of a debug build can pass on: in half an hour edges
        // are minutes behind.
        usleep(20_000)
        let user = Self.users[Int.random(in: Self.users.indices, using: &random)]
        let place = Int.random(in: 0..<servers.withLock(\.count), using: &random)
        let (name, server) = servers.withLock { $0[place] }
        let path = "/v1/profiles/\(user)"
        let variation = Bool.random(using: &random) ? "70011" : "70012"
        let invokedAt = DispatchTime.now().uptimeNanoseconds
        do {
            switch Int.random(in: 0..<100, using: &random) {
            case ..<18: try buy(at: server)
            case ..<88:
                let response = try server.assign(user)
                let returnedAt = DispatchTime.now().uptimeNanoseconds
                let isUnstored =
                    response["reasons"].array?.contains { $0.string?.contains("not stored") ?? false } ?? false
                state.withLock { state in
                    state.answered += 1
                    if response.status != 200 {
                        if response.status != 503 { state.failed.append(response.text) }
                    } else if isUnstored {
                        state.unstored += 1
                    } else {
                        state.history.append(
                            .init(
                                user: user, server: name, invokedAt: invokedAt, returnedAt: returnedAt,
                                variation: response["variation_id"].string))
                    }
                }
            case ..<93:
                _ = try server.request("PUT", path + "/experiments/checkout", #"{"variation_id":"\#(variation)"}"#)
            case ..<96: _ = try server.request("DELETE", path + "/experiments/checkout")
            case ..<98:
                let other = Self.users[Int.random(in: Self.users.indices, using: &random)]
                _ = try server.request("POST", path + "/merge", #"{"from":"\#(other)"}"#)
            default: _ = try server.request("DELETE", path)
            }
        } catch {
            // The process was killed.
            usleep(10_000)
        }
    }
}
