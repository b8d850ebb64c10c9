import Storage
internal import Synchronization

/// Lets the edits of datafiles in this process run one after the other, in the order in which they began.
///
/// Concurrent edits would conflict: each is based on the newest datafile, so all but one would have to be repeated.
/// Edits of other processes may still conflict; ``ProjectEditor`` then repeats the edit.
final class EditQueue: Sendable {
    private struct State {
        /// Continues the edits that wait, oldest first.
        var waiting: [@Sendable () -> Void] = []
        /// Whether an edit is in progress.
        var isEditing = false
    }

    private let state = Mutex(State())

    /// Waits until all edits that began earlier have ended. A call of ``end()`` must follow in any case.
    func begin() async {
        await settled { resume in
            let isFirst = state.withLock { state in
                defer { state.isEditing = true }
                if state.isEditing { state.waiting.append { resume(()) } }
                return !state.isEditing
            }
            if isFirst { resume(()) }
        }
    }

    /// Ends the edit in progress. The next one that waits begins.
    func end() {
        let next = state.withLock { state in
            state.isEditing = !state.waiting.isEmpty
            return state.isEditing ? state.waiting.removeFirst() : nil
        }
        next?()
    }

    /// Lets other edits run during work that takes long: ends the edit in progress, does the work, and begins again
    /// behind the edits that wait then.
    func yield(during work: () async throws -> Void) async throws {
        end()
        do {
            try await work()
        } catch {
            await begin()
            throw error
        }
        await begin()
    }
}
