#if PostgreSQL
    import StoragePostgreSQL
#endif

/// A setting that names a database, such as `--database`: a SQLite file, or a connection string of PostgreSQL.
struct DatabaseLocation: Sendable, Equatable {
    let text: String

    init(_ text: String) {
        self.text = text
    }

    /// Whether the location is a connection string with a password.
    var hasPassword: Bool {
        #if PostgreSQL
            return isPostgreSQL && ConnectionString(text).hasPassword
        #else
            return isPostgreSQL && text.contains("@")
        #endif
    }

    /// Checks that the client library of PostgreSQL is installed, if connections need it.
    ///
    /// - Throws: ``Failure`` if connections need a library that is not installed.
    func expectLibrary() throws {
        #if PostgreSQL
            guard ConnectionString.isLibraryInstalled else {
                throw Failure("the database \(self) needs libpq: apt-get install libpq5")
            }
        #endif
    }

    /// Whether the location is a connection string, rather than a file.
    var isPostgreSQL: Bool { text.hasPrefix("postgresql://") || text.hasPrefix("postgres://") }
}

extension DatabaseLocation: CustomStringConvertible {
    /// The location for messages and logs, without the user and password of a connection string.
    var description: String {
        guard isPostgreSQL else { return text }
        #if PostgreSQL
            return ConnectionString.isLibraryInstalled ? ConnectionString(text).withoutSecrets : "postgresql://…"
        #else
            return "postgresql://…"
        #endif
    }
}
