import HTTPServer
import HoldfastCore
import Storage

/// `If-Match` and `If-None-Match` of a request that changes something (RFC 9110 §13.1): nobody overwrites what another
/// one has changed meanwhile, or makes what is there already.
struct Preconditions: Sendable {
    private let ifMatch: String?
    private let ifNoneMatch: String?

    init(_ request: borrowing Request) {
        ifMatch = request.field("if-match")
        ifNoneMatch = request.field("if-none-match")
    }

    var isEmpty: Bool { ifMatch == nil && ifNoneMatch == nil }

    /// Whether they hold for what has these tags, one for each of its representations; none if there is nothing yet.
    func hold(for current: [EntityTag]) -> Bool {
        if let ifMatch, !current.contains(where: { $0.isListed(in: ifMatch, weakly: false) }) { return false }
        if let ifNoneMatch, current.contains(where: { $0.isListed(in: ifNoneMatch) }) { return false }
        return true
    }

    /// What a store asks about a profile within the transaction of a change; `nil` if there is nothing to ask.
    ///
    /// - Parameter tags: those of the representations that a request may name, of the profile as it is stored.
    func condition(_ tags: @escaping @Sendable (ProfileRecord?) -> [EntityTag]) -> ProfileChange.Condition? {
        guard !isEmpty else { return nil }
        return { hold(for: tags($0)) }
    }

    /// - Parameter current: of what is to be changed; `nil` if there is nothing yet.
    /// - Throws: 412
    func check(_ current: EntityTag?) throws(HoldfastError) {
        if let ifMatch, current?.isListed(in: ifMatch, weakly: false) != true {
            throw HoldfastError(.preconditionFailed, "If-Match does not match the current version; nothing was stored")
        }
        if let ifNoneMatch, current?.isListed(in: ifNoneMatch) == true {
            throw HoldfastError(.preconditionFailed, "If-None-Match matches the current version; nothing was stored")
        }
    }
}
