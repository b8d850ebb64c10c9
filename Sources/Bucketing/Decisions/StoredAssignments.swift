/// What is stored of a user when a decision is made.
public protocol StoredAssignments: Sendable {
    func assignment(experimentID: Identifier) -> StoredAssignment?

    /// What audiences find where the request says nothing; `nil` if nothing is stored, or nobody asks for it.
    var attributes: (any AttributeSource)? { get }
}

extension StoredAssignments {
    public var attributes: (any AttributeSource)? { nil }
}

extension [Identifier: StoredAssignment]: StoredAssignments {
    public func assignment(experimentID: Identifier) -> StoredAssignment? {
        self[experimentID]
    }
}
