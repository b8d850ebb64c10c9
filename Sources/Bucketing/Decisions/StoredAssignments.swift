/// What is stored of a user when a decision is made.
public protocol StoredAssignments: Sendable {
    func assignment(experimentID: Identifier) -> StoredAssignment?

    /// What audiences find where the request says nothing; `nil` if nothing is stored, or nobody asks for it.
    var attributes: StoredAttributes? { get }
}

extension StoredAssignments {
    public var attributes: StoredAttributes? { nil }
}

extension [Identifier: StoredAssignment]: StoredAssignments {
    public func assignment(experimentID: Identifier) -> StoredAssignment? {
        self[experimentID]
    }
}
