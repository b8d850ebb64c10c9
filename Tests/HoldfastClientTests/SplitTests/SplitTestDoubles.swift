import HoldfastClient
import Synchronization

/// An assigner that answers what the test sets, and counts how often it is asked.
final class ScriptedAssigner: SplitTestAssigner {
    private let state: Mutex<(answer: Result<SplitTestAssignment?, SplitTestError>, count: Int)>

    init(_ variationKey: String?) {
        state = Mutex((.success(variationKey.map { SplitTestAssignment(variationKey: $0, variationID: "id") }), 0))
    }

    var count: Int { state.withLock(\.count) }

    func answer(_ variationKey: String?) {
        state.withLock { $0.answer = .success(variationKey.map { SplitTestAssignment(variationKey: $0, variationID: "id") }) }
    }

    func fail(_ error: SplitTestError) {
        state.withLock { $0.answer = .failure(error) }
    }

    func assignment(for request: SplitTestRequest) async throws(SplitTestError) -> SplitTestAssignment? {
        await Task.yield()
        let answer = state.withLock { state in
            state.count += 1
            return state.answer
        }
        return try answer.get()
    }
}

/// An app's analytics and a reporter in one, which notes what it is told.
final class RecordingAnalytics: SplitTestAnalytics, ExposureReporter {
    private let state = Mutex<(told: [String], failure: SplitTestError?)>(([], nil))

    var told: [String] { state.withLock(\.told) }

    func failReports(with error: SplitTestError?) {
        state.withLock { $0.failure = error }
    }

    func userWasExposed(_ exposure: SplitTestExposure) async {
        state.withLock { $0.told.append("analytics \(exposure.userID) \(exposure.testKey) \(exposure.assignment.variationKey)") }
    }

    func exposureWasNotReported(_ exposure: SplitTestExposure, error: SplitTestError) async {
        state.withLock { $0.told.append("not reported \(exposure.testKey)") }
    }

    func report(_ exposure: SplitTestExposure) async throws(SplitTestError) {
        if let failure = state.withLock(\.failure) { throw failure }
        state.withLock { $0.told.append("report \(exposure.userID) \(exposure.testKey) \(exposure.assignment.variationKey)") }
    }
}

/// A storage of which reading, or writing, fails while the test wants it to.
final class FailingStorage: SplitTestStorage {
    struct Failure: Error {}

    private let inner = InMemorySplitTestStorage()
    private let failing = Mutex((reads: false, writes: false))

    func fail(reads: Bool = false, writes: Bool = false) {
        failing.withLock { $0 = (reads, writes) }
    }

    func value(forKey key: String) async throws -> String? {
        if failing.withLock(\.reads) { throw Failure() }
        return try await inner.value(forKey: key)
    }

    func set(_ value: String?, forKey key: String) async throws {
        if failing.withLock(\.writes) { throw Failure() }
        try await inner.set(value, forKey: key)
    }
}

enum PaywallTest: SplitTest {
    static let key = "paywall"

    enum Group: String, CaseIterable {
        case control
        case controlCheck = "control_check"
        case annualFirst = "annual_first"
    }
}
