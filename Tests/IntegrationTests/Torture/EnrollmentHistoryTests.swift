import APITestSupport
import Foundation
import JSON
import Synchronization
import Testing

/// Enrollment that opens and closes while two servers on one database assign users. The long form is asked for by
/// `HOLDFAST_TORTURE_SECONDS`.
///
/// A check of its own beside ``HistoryChecker``: a response without a variation promises nothing, since a server may
/// not have seen yet that enrollment is open again. What must never happen is that somebody is moved, loses the
/// variation, or is enrolled while enrollment is certainly closed.
@Suite struct EnrollmentHistoryTests {
    private let directory: TemporaryDirectory
    private let servers: [ServerProcess]

    init() throws {
        directory = try TemporaryDirectory()
        let database = directory.file("holdfast.db")
        servers = [try ServerProcess(database: database), try ServerProcess(database: database)]
    }

    private struct Answer {
        let user: String
        let variation: String?
        let invokedAt: Date
        let returnedAt: Date
    }

    /// A time in which enrollment was closed for certain: from the response to the change until the next request.
    private struct ClosedPeriod {
        let start: Date
        var end: Date
    }

    @Test func `Nobody is enrolled while enrollment is closed, and nobody who takes part is ever moved`() throws {
        let body = #"{"id":"7","variations":[{"key":"a","id":"70"},{"key":"b","id":"71"}]}"#
        #expect(try servers[0].request("PUT", "/v1/experiments/checkout", body).status == 201)
        // A change reads the newest datafile first.
        #expect(try servers[1].request("PUT", "/v1/experiments/checkout", "{}").status == 200)
        let answers = Mutex<[Answer]>([])
        let isOver = Atomic<Bool>(false)
        let done = DispatchGroup()
        for number in 0..<4 {
            let server = servers[number % 2]
            done.enter()
            Thread.detachNewThread {
                defer { done.leave() }
                do {
                    let client = try server.client()
                    var own: [Answer] = []
                    var round = 0
                    while !isOver.load(ordering: .relaxed) {
                        // All ask for the same users, some of whom are new at any time.
                        let user = "user\(round / 3 - round % 3 * 5)"
                        round += 1
                        let invokedAt = Date()
                        let response = try client.request(
                            "POST", "/v1/assign", "{\"user_id\":\"\(user)\",\"experiment\":\"checkout\"}")
                        if response.status == 503 { continue }
                        #expect(response.status == 200, "\(response.text)")
                        own.append(
                            Answer(
                                user: user, variation: response["variation_id"].string, invokedAt: invokedAt,
                                returnedAt: Date()))
                    }
                    answers.withLock { $0 += own }
                } catch {
                    Issue.record(error)
                }
            }
        }
        let closed = try changeEnrollment()
        isOver.store(true, ordering: .relaxed)
        done.wait()
        let all = answers.withLock { $0 }
        expectNobodyMoved(all)
        try expectNobodyEnrolled(all, during: closed)
    }

    private func changeEnrollment() throws -> [ClosedPeriod] {
        var periods: [ClosedPeriod] = []
        for number in TortureSettings.rounds(short: 30) {
            let closes = number % 2 == 0
            let invokedAt = Date()
            let response = try servers[number / 2 % 2].request(
                "PUT", "/v1/experiments/checkout", "{\"enrollment\":\"\(closes ? "closed" : "open")\"}")
            #expect(response.status == 200, "\(response.text)")
            if closes {
                periods.append(ClosedPeriod(start: Date(), end: .distantFuture))
            } else {
                periods[periods.count - 1].end = invokedAt
            }
        }
        return periods
    }

    private func expectNobodyMoved(_ answers: [Answer]) {
        #expect(answers.contains { $0.variation != nil } && answers.contains { $0.variation == nil })
        for (user, own) in Dictionary(grouping: answers, by: \.user) {
            let given = own.filter { $0.variation != nil }
            #expect(Set(given.map(\.variation)).count <= 1, "\(user) was moved")
            guard let first = given.map(\.returnedAt).min() else { continue }
            #expect(!own.contains { $0.variation == nil && $0.invokedAt > first }, "\(user) lost the variation")
        }
    }

    private func expectNobodyEnrolled(_ answers: [Answer], during closed: [ClosedPeriod]) throws {
        let client = try servers[0].client()
        let parser = ISO8601DateFormatter()
        parser.formatOptions = [.withInternetDateTime, .withFractionalSeconds]
        for user in Set(answers.filter { $0.variation != nil }.map(\.user)) {
            let profile = try client.request("GET", "/v1/profiles/\(user)?detail=true")
            let text = try #require(profile["experiment_bucket_map"]["7"]["assigned_at"].string)
            let assignedAt = try #require(parser.date(from: text))
            // The server's clock counts whole milliseconds.
            let period = closed.first { assignedAt > $0.start && assignedAt < $0.end.addingTimeInterval(-0.002) }
            #expect(period == nil, "\(user) was enrolled at \(text)")
        }
    }
}
