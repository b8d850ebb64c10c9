import Bucketing
import Synchronization

/// Tells each reader of this process what a commit has changed, so that its cache keeps up.
final class CommitNotices: Sendable {
    /// What one reader has not taken note of yet.
    final class Inbox: Sendable {
        private struct Contents {
            var notices: [Notice] = []
            var bytes = 0
        }

        /// Bytes of one inbox, about; a reader that is idle for longer forgets everything instead.
        private static let capacity = 2 << 20
        private let contents = Mutex(Contents())
        private let isFilled = Atomic<Bool>(false)

        fileprivate func put(_ notice: Notice) {
            contents.withLock { contents in
                contents.bytes += notice.bytes
                if contents.bytes > Self.capacity {
                    contents = Contents(notices: [
                        Notice(number: notice.commit.number, changes: nil, header: notice.commit.header)
                    ])
                } else {
                    contents.notices.append(notice)
                }
            }
            isFilled.store(true, ordering: .releasing)
        }

        /// Takes out all notices, the oldest first.
        func take() -> [Notice] {
            guard isFilled.exchange(false, ordering: .acquiring) else { return [] }
            return contents.withLock { contents in
                defer { contents = Contents() }
                return contents.notices
            }
        }
    }

    struct Notice: Sendable {
        let commit: Commit
        /// The header of the log before the commit.
        let former: LogHeader?
        /// What was changed; `nil`: anything may have been.
        let changes: UserChanges?
        /// What the notice holds, about.
        let bytes: Int

        init(number: Int64, changes: UserChanges?, header: LogHeader? = nil, after former: LogHeader? = nil) {
            commit = Commit(number: number, header: header)
            self.former = former
            self.changes = changes
            bytes = 192 + (changes?.size ?? 0)
        }
    }

    private let inboxes = Mutex<[Inbox]>([])
    /// The number of the commit that this process is about to make or has just made; 0 when there is none.
    private let announced = Atomic<Int64>(0)
    private let closed = Atomic<Bool>(false)

    /// Whether the store has been closed, so that readers have nothing to answer from any more.
    var isClosed: Bool { closed.load(ordering: .acquiring) }

    func close() {
        closed.store(true, ordering: .releasing)
    }

    func makeInbox() -> Inbox {
        let inbox = Inbox()
        inboxes.withLock { $0.append(inbox) }
        return inbox
    }

    func remove(_ inbox: Inbox) {
        inboxes.withLock { $0.removeAll { $0 === inbox } }
    }

    func announce(_ number: Int64) {
        announced.store(number, ordering: .sequentiallyConsistent)
    }

    /// Whether this process is the one that makes the commit of this number.
    func isAnnounced(_ number: Int64) -> Bool {
        number > 0 && announced.load(ordering: .sequentiallyConsistent) == number
    }

    func deliver(_ notice: Notice) {
        for inbox in inboxes.withLock({ $0 }) { inbox.put(notice) }
    }
}
