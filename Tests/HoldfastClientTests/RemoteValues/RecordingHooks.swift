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
