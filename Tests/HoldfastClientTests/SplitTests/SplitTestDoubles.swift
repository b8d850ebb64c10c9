import Foundation
import Synchronization

@testable import HoldfastClient

enum PaywallTest: SplitTest {
    static let identifier = "paywall"

    enum Group: String, CaseIterable, SplitTestGroup {
        case control
        case controlCheck = "control_check"
        case annualFirst = "annual_first"
    }
}

/// The same test after a group was retired.
enum LaterPaywallTest: SplitTest {
    static let identifier = "paywall"

    enum Group: String, SplitTestGroup {
        case control
        case controlCheck = "control_check"
        case annualFirst = "annual_first"

        static let testGroups: [Group] = [.control, .controlCheck]
    }
}

/// A server that assigns what a test sets.
final class AssigningServer: Sendable {
    enum Response: Sendable {
        case group(String?)
        /// A group that the user has already, with the source of it.
        case held(String, source: String)
        case error(HoldfastError)
        case problem(Int)
        /// Never.
        case silence
    }

    let stub: StubServer

    init(_ response: Response) {
        let state = Shared(response)
        stub = StubServer { call throws(HoldfastError) in
            guard call.path == "/v1/assign" else { return Client.usual(call) }
            func assignment(_ key: String?, _ source: String) -> StubServer.Response {
                let variation =
                    key.map { #""variation_id":"id","variation_key":"\#($0)""# }
                    ?? #""variation_id":null,"variation_key":null"#
                return .json(
                    #"{"experiment_id":"70","experiment_key":"paywall",\#(variation),"source":"\#(source)","reasons":[]}"#
                )
            }
            switch state.value {
            case .group(let key): return assignment(key, "bucketed")
            case .held(let key, let source): return assignment(key, source)
            case .error(let error): throw error
            case .problem(let status): return .problem(status, "no")
            case .silence:
                try? await Task.sleep(for: .seconds(3_600))
                throw .cancelled
            }
        }
        self.state = state
    }

    private final class Shared: Sendable {
        private let mutex: Mutex<Response>
        init(_ response: Response) { mutex = Mutex(response) }
        var value: Response {
            get { mutex.withLock { $0 } }
            set { mutex.withLock { $0 = newValue } }
        }
    }

    private let state: Shared

    func assign(_ response: Response) { state.value = response }

    var count: Int { stub.calls("/v1/assign").count }
}

/// Analytics that record their calls.
final class RecordingAnalytics: SplitTestAnalytics {
    private let state = Mutex<[String]>([])

    var calls: [String] { state.withLock { $0 } }

    func setOnce(value: String, for key: String) {
        state.withLock { $0.append("\(key)=\(value)") }
    }
}

/// A storage whose reads or writes fail when a test wants it.
final class FailingStorage: SplitTestStorage {
    struct Failure: Error {}

    private let inner = InMemorySplitTestStorage()
    private let failing = Mutex((reads: false, writes: false))

    func fail(reads: Bool = false, writes: Bool = false) {
        failing.withLock { $0 = (reads, writes) }
    }

    func string(forKey key: String) throws -> String? {
        if failing.withLock(\.reads) { throw Failure() }
        return inner.string(forKey: key)
    }

    func set(_ value: String?, forKey key: String) throws {
        if failing.withLock(\.writes) { throw Failure() }
        inner.set(value, forKey: key)
    }
}
