/// What an admin can do, as the audit log names it.
public enum AuditAction: String, Sendable, CaseIterable {
    /// A variation was set for a user; the target is the experiment's id.
    case overrideSet = "override.set"
    /// A user's assignment was removed, an override or not; the target is the experiment's id.
    case assignmentRemove = "assignment.remove"
    /// All that is stored of a user was erased. The entry does not say of whom.
    case profileErase = "profile.erase"
    /// A variation was forced on a user for a test; the target is the experiment's key.
    case forcedVariationSet = "forced_variation.set"
    /// It is no longer; the target is the experiment's key.
    case forcedVariationRemove = "forced_variation.remove"
    /// A datafile was put in force; the target is the SDK key.
    case datafilePut = "datafile.put"
    /// An experiment was made or changed; the target is its key.
    case experimentPut = "experiment.put"
    /// An experiment was archived; the target is its key.
    case experimentArchive = "experiment.archive"
    /// An experiment was deleted, which former releases did; the target is its key.
    case experimentDelete = "experiment.delete"
    /// An attribute was defined, or a selection got other values; the target is its name.
    case attributePut = "attribute.put"
    /// An attribute was deleted with all its values; the target is its name.
    case attributeDelete = "attribute.delete"
    /// A segment was defined or got other conditions; the target is its name.
    case segmentPut = "segment.put"
    /// A segment was deleted; the target is its name.
    case segmentDelete = "segment.delete"
    /// The access tokens were read anew; the target is their file.
    case tokensReload = "tokens.reload"
    /// The database was brought to another version; the target is that version.
    case databaseMigrate = "database.migrate"
}
