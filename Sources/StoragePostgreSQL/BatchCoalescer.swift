/// Decides at the end of a batch whether to send the waiting statements now, or together with those of the next batch.
///
/// An exchange sends statements to the database and receives their results. When an exchange ends, clients get
/// responses, and are about to send their next requests. Without a pause, the next exchange would have only the
/// statements of requests that arrived during the last one, and exchanges would be half as large as possible. A pause
/// is one iteration of the event loop that does not sleep. It takes a few microseconds if nothing arrives.
struct BatchCoalescer {
    /// The maximum number of pauses in a row.
    static let mostPauses = 4

    /// Whether an exchange has ended recently, so that a pause may pay off.
    private var isCoalescing = false
    /// The number of pauses since the exchange has ended.
    private var pauses = 0
    /// The number of waiting statements at the end of the last batch.
    private var lastWaiting = 0

    /// Notes that an exchange has ended and its responses are sent in this batch.
    mutating func begin() {
        isCoalescing = true
    }

    /// Returns whether to wait for another batch. The answer is `true` after the batch that sent responses. It stays
    /// `true` as long as each further batch adds statements, but for at most ``mostPauses`` pauses.
    ///
    /// - Parameter waiting: the number of waiting statements.
    mutating func shouldWait(waiting: Int) -> Bool {
        let isMore = waiting > lastWaiting
        lastWaiting = waiting
        guard isCoalescing, pauses < Self.mostPauses, pauses == 0 || isMore else {
            isCoalescing = false
            pauses = 0
            return false
        }
        pauses += 1
        return true
    }
}
