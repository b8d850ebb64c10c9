import Bucketing

/// What a commit changed of one user.
enum UserChange: Sendable {
    /// The record that is stored now; `nil` when there is no profile any more.
    case profile(Identifier, record: [UInt8]?)
    case attributes(Identifier)

    /// What it takes in memory, about.
    var bytes: Int {
        switch self {
        case .profile(let userID, let record): 96 + userID.string.utf8.count + (record?.count ?? 0)
        case .attributes(let userID): 64 + userID.string.utf8.count
        }
    }
}
