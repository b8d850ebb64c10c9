public import Definitions

/// The projects that a caller may use. Whatever resolves a project for a caller asks for it, so no endpoint can forget the
/// check: ``ProjectView``, and ``ProjectCatalog/Snapshot`` for changes.
public struct ProjectAccess: Sendable, Equatable {
    /// Every project, those that do not exist yet included.
    public static let all = ProjectAccess(sdkKeys: nil)

    /// Sorted; `nil` for all projects.
    public let sdkKeys: [String]?

    private init(sdkKeys: [String]?) {
        self.sdkKeys = sdkKeys
    }

    /// Only the projects of these SDK keys.
    public init(only sdkKeys: some Sequence<String>) {
        self.sdkKeys = Set(sdkKeys).sorted()
    }

    public func allows(_ sdkKey: String) -> Bool { sdkKeys?.contains(sdkKey) ?? true }

    /// The project that a request means that names none, instead of the default: the only one that the caller may use.
    var onlyProject: String? { sdkKeys?.count == 1 ? sdkKeys?.first : nil }

    /// - Throws: 403, which names the project, unless the caller may use it.
    public func check(_ sdkKey: String) throws(CoreError) {
        guard let sdkKeys, !sdkKeys.contains(sdkKey) else { return }
        let list = sdkKeys.joined(separator: ", ")
        throw CoreError(
            .forbidden, "the token is bound to the projects \(list); it may not use the project '\(sdkKey)'")
    }
}
