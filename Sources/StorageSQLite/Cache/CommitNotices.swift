import Synchronization

/// Notifies each reader of this process of what commits changed, so that its cache stays current.
///
/// The ``Writer`` announces the number of each commit before it commits, and then delivers a notice to the inbox of
/// each ``SQLiteReader``. The reader takes its notices before the first lookup of a batch.
final class CommitNotices: Sendable {
    /// The notices that one reader has not processed yet.
    final class Inbox: Sendable {
        private struct Contents {
            var notices: [Notice] = []
            var bytes = 0
        }

        /// The approximate capacity in bytes. If the inbox of an idle reader overflows, the reader clears its cache
        /// instead.
        private static let capacity = 2 << 20
        private let contents = Mutex(Contents())
        /// Whether there are notices. Cheaper to read than ``contents``.
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

        /// Removes and returns all notices, oldest first.
        func take() -> [Notice] {
            guard isFilled.exchange(false, ordering: .acquiring) else { return [] }
            return contents.withLock { contents in
                defer { contents = Contents() }
                return contents.notices
            }
        }
    }

    /// What one commit changed.
    struct Notice: Sendable {
        let commit: Commit
        /// The log's header before the commit.
        let former: LogHeader?
        /// What changed; `nil` if anything may have.
        let changes: UserChanges?
        /// The approximate size of the notice.
        let bytes: Int

        init(number: Int64, changes: UserChanges?, header: LogHeader? = nil, after former: LogHeader? = nil) {
            commit = Commit(number: number, header: header)
            self.former = former
            self.changes = changes
            bytes = 192 + (changes?.size ?? 0)
        }
    }

    private let inboxes = Mutex<[Inbox]>([])
    /// The number of the last commit that this process has begun to make; 0 after a failed one.
    private let announced = Atomic<Int64>(0)
    private let closed = Atomic<Bool>(false)

    /// Whether the store has been closed; readers then refuse to read.
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

    /// Announces a commit before it is made, so that a reader that sees the commit knows whose it is. 0 withdraws it.
    func announce(_ number: Int64) {
        announced.store(number, ordering: .sequentiallyConsistent)
    }

    /// Whether this process makes the commit with this number.
    func isAnnounced(_ number: Int64) -> Bool {
        number > 0 && announced.load(ordering: .sequentiallyConsistent) == number
    }

    /// Puts a notice into all inboxes, after the commit.
    func deliver(_ notice: Notice) {
        for inbox in inboxes.withLock({ $0 }) { inbox.put(notice) }
    }
}
