import HoldfastClient
import Synchronization

/// Notes what it is told, and answers what it is given.
final class RecordingHooks: RemoteValueHooks {
    private let notes = Mutex<[String]>([])
    private let replacement: RemoteRawValue?

    init(replacement: RemoteRawValue? = nil) {
        self.replacement = replacement
    }

    /// What was told since the last call.
    func takeNotes() -> [String] {
        notes.withLock { notes in
            defer { notes = [] }
            return notes
        }
    }

    private func note(_ text: String) {
        notes.withLock { $0.append(text) }
    }

    func missingValue(for key: RemoteKey) -> RemoteRawValue? {
        note("missing \(key)")
        return replacement
    }

    func incorrectValue(_ raw: RemoteRawValue, for key: RemoteKey, expected: any RemoteValueType.Type) -> RemoteRawValue? {
        note("incorrect \(key): \(raw) is no \(expected)")
        return replacement
    }

    func readValue(for key: RemoteKey, of group: ExperimentalGroup) {
        note("read \(key) of \(group.variationKey)")
    }
}

/// A keeper whose fetches are answered in the order and with the values the test chooses.
final class GatedKeeper: RemoteValueKeeper {
    typealias Fetch = CheckedContinuation<[RemoteKey: FetchedValue], Never>

    /// The fetches as they come.
    let fetches: AsyncStream<Fetch>
    private let arrivals: AsyncStream<Fetch>.Continuation

    init() {
        (fetches, arrivals) = AsyncStream.makeStream()
    }

    var keptValues: [RemoteKey: FetchedValue] { [:] }

    func fetchValues() async throws(RemoteValueError) -> [RemoteKey: FetchedValue] {
        await withCheckedContinuation { _ = arrivals.yield($0) }
    }
}

enum Layout: String, RemoteValueType {
    case grid, list, stack
}

@RemoteValuesNamespace("feed")
struct FeedValues {
    @StringRemoteValue var title = "News"
    @BoolRemoteValue(enabledByDefault: false) var showsStories: Bool
    @BaselineStringRemoteValue var layout: Layout = .grid
    @BaselineBoolRemoteValue(enabledByDefault: true, key: "sound") var playsSound: Bool
}

extension RemoteValues {
    @StringRemoteValue var greeting = "Hello"
}
