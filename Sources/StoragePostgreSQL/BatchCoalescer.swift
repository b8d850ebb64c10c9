/// Decides at the end of a batch whether what waits is sent now or together with what the next batch brings.
///
/// Clients that were just answered are about to send their next requests. Without a pause those that came while the last
/// exchange was away would always go out without them, and exchanges would be half as large as they can be. A pause is
/// an iteration of the event loop that does not sleep: a few microseconds if nothing comes.
struct BatchCoalescer {
    /// The maximum number of pauses in a row.
    static let mostPauses = 4

    private var isUnderWay = false
    private var pauses = 0
    /// What waited at the end of the last batch.
    private var lastWaiting = 0

    /// An exchange has ended, and those who waited for it are answered.
    mutating func begin() {
        isUnderWay = true
    }

    /// Whether to wait for another batch: after the one that answered, and as long as each brings more.
    mutating func shouldWait(waiting: Int) -> Bool {
        let isMore = waiting > lastWaiting
        lastWaiting = waiting
        guard isUnderWay, pauses < Self.mostPauses, pauses == 0 || isMore else {
            (isUnderWay, pauses) = (false, 0)
            return false
        }
        pauses += 1
        return true
    }
}
