import ArgumentParser
import FoundationEssentials
import Storage

/// The rules of profiles, for every command that writes them.
struct ProfileRuleOptions: ParsableArguments {
    @Option(help: .init("Lifetime of an assignment after its last save (default: forever).", valueName: "time"))
    var assignmentTTL: String?

    @Option(help: .init("Maximum number of assignments in a profile (default: 1000).", valueName: "n"))
    var maxAssignments: String?

    /// Reads the rules that are given.
    func apply(_ settings: Settings, to rules: inout ProfileRules) throws {
        // A lifetime of 0 cannot be given. It stays if the setting is missing, and assignments are then kept for ever.
        var ttl = Period(seconds: 0)
        try settings.apply(assignmentTTL, "assignment-ttl", to: &ttl)
        if ttl.seconds > 0 { rules.assignmentTTL = ttl.span }
        try settings.apply(maxAssignments, "max-assignments", in: 1...100_000, to: &rules.assignmentLimit)
    }

    /// The rules from the options, the environment, or the defaults.
    func rules(environment: [String: String]) throws -> ProfileRules {
        var rules = ProfileRules()
        try apply(Settings(environment: environment), to: &rules)
        return rules
    }
}

/// The option of all commands that use a database.
struct DatabaseOptions: ParsableArguments {
    @Option(help: .init("The SQLite database file, or postgresql://… (default: ./holdfast.db).", valueName: "database"))
    var database: String?

    /// Reads the location if it is given.
    func apply(_ settings: Settings, to location: inout DatabaseLocation) throws {
        try Self.apply(database, "database", settings, to: &location)
    }

    /// Reads the location of a database from any option, and checks it.
    ///
    /// - Throws: ``Failure`` if the path is a directory, for which SQLite would report a failing disk; or if the
    ///   command line has a password, which all users of the host can see.
    static func apply(
        _ option: String?, _ name: String, _ settings: Settings, to location: inout DatabaseLocation
    ) throws {
        var text = location.text
        settings.apply(option, name, to: &text)
        location = DatabaseLocation(text)
        if location.isPostgreSQL {
            try location.expectLibrary()
            guard option == nil || !location.hasPassword else {
                throw Failure(
                    "the password must not be on the command line, which every user of the host can see: "
                        + "give it in PGPASSFILE or PGPASSWORD, or the whole string in \(Settings.variable(name))"
                )
            }
            return
        }
        guard !FileManager.default.directoryExists(atPath: text) else {
            throw Failure("the database must be a file; \(text) is a directory")
        }
    }

    /// The location from the option, the environment, or the default.
    func location(environment: [String: String]) throws -> DatabaseLocation {
        var location = ServeConfiguration().database
        try apply(Settings(environment: environment), to: &location)
        return location
    }

    /// The path of the database, for a command that needs a SQLite file.
    ///
    /// - Parameter instead: what to use for PostgreSQL.
    /// - Throws: ``Failure`` for a PostgreSQL database.
    func path(environment: [String: String], instead: String) throws -> String {
        let location = try location(environment: environment)
        guard !location.isPostgreSQL else {
            throw Failure("the database must be a SQLite file; for PostgreSQL use \(instead)")
        }
        return location.text
    }
}
