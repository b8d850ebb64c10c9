/// Why a request was refused before any handler saw it. The connection is closed after the answer, because what
/// follows on it can no longer be told apart.
public struct RequestFailure: Error, Sendable, Equatable {
    public let status: Status
    /// What is wrong and where, for the person who wrote the client.
    public let detail: String

    init(_ status: Status, _ detail: String) {
        self.status = status
        self.detail = detail
    }
}
