/// What is stored of a user when a decision is made.
public protocol StoredAssignments: Sendable {
    func assignment(experimentID: Identifier) -> StoredAssignment?
}

extension [Identifier: StoredAssignment]: StoredAssignments {
    public func assignment(experimentID: Identifier) -> StoredAssignment? {
        self[experimentID]
    }
}
