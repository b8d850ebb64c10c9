/// An event that waits, as it is kept: what is sent is written once, when it happens.
struct QueuedEvent: Sendable {
    /// Rises with each event of the directory.
    let number: UInt64
    let kind: EventKind
    /// A JSON object without line feeds.
    let payload: [UInt8]
}
