import Synchronization

/// Notifies the readers of this process of the changes in each commit, so that their caches stay current.
///
/// The ``Writer`` announces the number of each commit before it commits. After the commit it delivers a notice to the
/// inbox of each ``SQLiteReader``. A reader takes its notices before the first lookup of a batch.
final class CommitNotices: Sendable {
    /// The notices that one reader has not processed yet.
    final class Inbox: Sendable {
        private struct Contents {
            var notices: [Notice] = []
            /// The approximate size of all notices since the last ``Inbox/take()``.
            var bytes = 0
        }

        /// The approximate capacity in bytes. If the inbox of an idle reader overflows, one notice of unknown changes
        /// takes the place of all others, and makes the reader clear its cache.
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

    /// The changes of one commit.
    struct Notice: Sendable {
        let commit: Commit
        /// The log's header before the commit; `nil` if it is unknown.
        let former: LogHeader?
        /// The changed users; `nil` if any user may have changed.
        let changes: UserChanges?
        /// The approximate size of the notice.
        let bytes: Int

        /// The approximate size of a notice without changes.
        private static let overhead = 192

        init(number: Int64, changes: UserChanges?, header: LogHeader? = nil, after former: LogHeader? = nil) {
            commit = Commit(number: number, header: header)
            self.former = former
            self.changes = changes
            bytes = Self.overhead + (changes?.size ?? 0)
        }
    }

    private let inboxes = Mutex<[Inbox]>([])
    /// The number of the last commit that this process has announced; 0 before the first one, and after
    /// a failed one.
    private let announced = Atomic<Int64>(0)
    private let closed = Atomic<Bool>(false)

    /// Whether the store has been closed; readers then refuse to read.
    var isClosed: Bool { closed.load(ordering: .acquiring) }

    func close() {
        closed.store(true, ordering: .releasing)
    }

    /// Creates the inbox of a reader, which receives the notices from now on.
    func makeInbox() -> Inbox {
        let inbox = Inbox()
        inboxes.withLock { $0.append(inbox) }
        return inbox
    }

    func remove(_ inbox: Inbox) {
        inboxes.withLock { $0.removeAll { $0 === inbox } }
    }

    /// Announces a commit before it is made, so that a reader that sees the commit in the database knows that this
    /// process has made it.
    ///
    /// - Parameter number: the number of the commit; 0 withdraws an announcement.
    func announce(_ number: Int64) {
        announced.store(number, ordering: .sequentiallyConsistent)
    }

    /// Whether this process has announced the commit with this number.
    func isAnnounced(_ number: Int64) -> Bool {
        number > 0 && announced.load(ordering: .sequentiallyConsistent) == number
    }

    /// Puts a notice into all inboxes, after the commit.
    func deliver(_ notice: Notice) {
        for inbox in inboxes.withLock({ $0 }) { inbox.put(notice) }
    }
}
