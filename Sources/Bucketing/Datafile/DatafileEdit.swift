public import JSON

/// The difference between two datafiles if few experiments and flags were changed in place, and nothing else.
///
/// Most edits are of this kind. Their datafiles are compiled and stored quickly, because only the changed elements are
/// read: see ``Datafile/edited(to:_:)`` and ``DatafileParts/edited(to:since:_:)``.
public struct DatafileEdit: Sendable {
    /// The indices of the changed elements in the datafile's list `experiments`. Experiments of groups are in other
    /// lists.
    public let experiments: [Int]
    /// The indices of the changed elements in the datafile's list `featureFlags`.
    public let flags: [Int]

    /// The maximum number of changed elements. If more have changed, the whole datafile is compiled.
    private static let limit = 64
    /// The members that are compared element by element.
    private static let lists = ["experiments", "featureFlags"]
    /// The members that may differ in any way, because they are always read again.
    private static let details = ["revision", Annotations.member]

    /// Creates the difference that an edit has made, if the code that made the edit knows what it changed.
    ///
    /// - Returns: `nil` if too many elements were changed.
    public init?(experiments: [Int], flags: [Int]) {
        guard experiments.count + flags.count <= Self.limit else { return nil }
        self.experiments = experiments
        self.flags = flags
    }

    /// Creates the difference between two datafiles by comparing them.
    ///
    /// - Returns: `nil` if the datafiles differ in any other way, or in too many elements.
    public init?(from former: JSONObject, to edited: JSONObject) {
        guard Self.haveSameOtherMembers(former, edited),
            let experiments = Self.changes(from: former["experiments"], to: edited["experiments"]),
            let flags = Self.changes(from: former["featureFlags"], to: edited["featureFlags"]),
            experiments.count + flags.count <= Self.limit
        else { return nil }
        self.experiments = experiments
        self.flags = flags
    }

    /// Whether this can be the difference between two datafiles. The elements of the lists are not compared, because
    /// that would take as long as finding the difference.
    ///
    /// - Returns: false if the lists have different lengths, an index is beyond the end of its list, or other members
    ///   differ.
    func canLead(from former: JSONObject, to edited: JSONObject) -> Bool {
        func count(_ list: String, of datafile: JSONObject) -> Int { datafile[list]?.array?.count ?? 0 }
        guard Self.lists.allSatisfy({ count($0, of: former) == count($0, of: edited) }),
            Self.haveSameOtherMembers(former, edited)
        else { return false }
        let experimentCount = count("experiments", of: edited)
        let flagCount = count("featureFlags", of: edited)
        return experiments.allSatisfy { $0 < experimentCount } && flags.allSatisfy { $0 < flagCount }
    }

    /// Whether two datafiles have the same members, and equal values of all members except ``lists`` and ``details``.
    private static func haveSameOtherMembers(_ former: JSONObject, _ edited: JSONObject) -> Bool {
        for member in edited where !lists.contains(member.key) && !details.contains(member.key) {
            guard former[member.key] == member.value else { return false }
        }
        return former.allSatisfy { details.contains($0.key) || edited[$0.key] != nil }
    }

    /// Returns the indices of the elements that differ; `nil` if the lists have different lengths.
    ///
    /// Elements that the edit did not touch share their storage with the former ones, so comparing them is fast.
    private static func changes(from former: JSONValue?, to edited: JSONValue?) -> [Int]? {
        let former = former?.array ?? []
        let edited = edited?.array ?? []
        guard former.count == edited.count else { return nil }
        return edited.indices.filter { former[$0] != edited[$0] }
    }
}

extension Datafile {
    /// Compiles only the changed elements of an edited datafile, and takes everything else from this datafile.
    ///
    /// - Parameters:
    ///   - source: the edited datafile.
    ///   - difference: the difference between the two datafiles; `nil` to find it by comparing them.
    /// - Returns: `nil` if the difference is not a ``DatafileEdit``, if a changed element affects others (see
    ///   ``Replacement/setExperiment(_:at:)``), or if the datafile has a problem. The caller then compiles the whole
    ///   datafile, which reports all problems.
    func edited(to source: JSONValue, _ difference: DatafileEdit? = nil) -> Datafile? {
        // If elements have equal ids, a change of one can affect another.
        guard elements.areUnique, let former = self.source.object, let edited = source.object,
            let revision = edited["revision"]?.string
        else { return nil }
        if let difference, !difference.canLead(from: former, to: edited) { return nil }
        guard let edit = difference ?? DatafileEdit(from: former, to: edited) else { return nil }
        var next = Replacement(self)
        for index in edit.experiments {
            guard let element = edited["experiments"]?.array?[index], next.setExperiment(element, at: index) else {
                return nil
            }
        }
        for index in edit.flags {
            guard let element = edited["featureFlags"]?.array?[index], next.setFlag(element, at: index) else {
                return nil
            }
        }
        next.relinkFlags(except: Set(edit.flags))
        return Datafile(self, source, revision: revision, next)
    }
}
