import Foundation

/// An event that waits, as it is kept: what is sent is written once, when it happens.
struct QueuedEvent: Sendable {
    /// Rises with each event of the directory.
    let number: UInt64
    let kind: EventKind
    /// A JSON object without line feeds.
    let payload: [UInt8]
    /// `nil` for an event that was not sent yet, or that did not fail by itself.
    var postponement: Postponement?

    /// Why and for how long an event waits that may be taken later. It is not on disk: after a restart an event is tried
    /// at once.
    final class Postponement: Sendable {
        let reason: HoldfastError
        let backoff: Backoff
        let rest: Rest

        /// In seconds: the least that an app which runs all day asks for an experiment that is gone.
        private static let longest: Double = 3_600

        init(after former: Postponement?, _ reason: HoldfastError, at now: Date) {
            var backoff = former?.backoff ?? Backoff(longest: Self.longest)
            self.reason = reason
            rest = Rest(start: now, duration: backoff.failed())
            self.backoff = backoff
        }

        /// The same without the rest; the next one is longer all the same.
        init(resuming former: Postponement) {
            reason = former.reason
            backoff = former.backoff
            rest = Rest(start: former.rest.start, duration: .zero)
        }
    }

    /// Whether it may be sent.
    func isDue(at now: Date) -> Bool {
        postponement.map { $0.rest.left(at: now) == .zero } ?? true
    }

    /// Whom the event is about.
    var userID: Key? {
        struct Owner: Decodable {
            var userID: String

            private enum CodingKeys: String, CodingKey {
                case userID = "user_id"
            }
        }
        return (try? JSONDecoder().decode(Owner.self, from: Data(payload))).map { Key($0.userID) }
    }
}
