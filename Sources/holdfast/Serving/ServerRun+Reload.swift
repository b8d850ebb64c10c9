import HoldfastAPI
import HoldfastCore
import Logging
import Storage
import StorageEdge

/// Reloads of token files at SIGHUP.
extension ServerRun {
    /// Reads the token files again at each SIGHUP, and reports that to systemd.
    func reloadOnHangUp(
        _ signals: Signals, _ tokens: TokenFile?, _ access: AccessControl, _ store: any Store,
        _ notifier: ServiceNotifier?
    ) throws {
        let audit = try BackgroundSession(store, label: "signals")
        signals.onHangUp { [logger, configuration] in
            var upstream: UpstreamTokenReload?
            if let path = configuration.upstreamTokenFile, let store = store as? EdgeStore {
                upstream = UpstreamTokenReload(path: path, store: store, access: access)
            }
            let reloadAll = { [upstream] in
                let problem = upstream?.read(logger)
                // An edge need not have a token file.
                guard tokens != nil || upstream == nil else { return problem }
                return Self.reload(tokens, access, audit, logger) ?? problem
            }
            if let notifier { notifier.reloading(reloadAll) } else { _ = reloadAll() }
        }
    }

    /// Activates the tokens of the file. If the file is invalid, the former tokens stay active.
    ///
    /// - Returns: a description of the failure without details; `nil` if the tokens were read.
    private static func reload(
        _ file: TokenFile?, _ access: AccessControl, _ audit: BackgroundSession, _ logger: Logger
    ) -> String? {
        guard let file else {
            let problem = "there is no token file to reload"
            logger.warning("\(problem)")
            return problem
        }
        do {
            let tokens = try file.read()
            let former = access.replaceTokens(tokens)
            logger.notice("read the token file again", metadata: ["tokens": .stringConvertible(tokens.count)])
            let note = AuditNote(
                .tokensReload, of: file.path, before: Token.describe(former), after: Token.describe(tokens))
            audit.run { session in
                session.write(.record(note, by: Author(name: "signal SIGHUP"))) { result in
                    guard case .failure(let error) = result else { return }
                    logger.error(
                        "the change of tokens was not recorded in the audit log", metadata: ["error": "\(error)"])
                }
            }
            return nil
        } catch {
            let problem = "the token file was not read; the former tokens stay active"
            access.reloadFailure = problem
            logger.error("\(problem)", metadata: ["error": "\(error)"])
            return problem
        }
    }
}

/// Reloads the token of an edge for its upstream.
private struct UpstreamTokenReload {
    let path: String
    let store: EdgeStore
    let access: AccessControl

    /// - Returns: a description of the failure without details; `nil` if the token was read.
    func read(_ logger: Logger) -> String? {
        do {
            store.replaceToken(try UpstreamToken.read(path: path))
            logger.notice("read the token for the upstream again")
            return nil
        } catch {
            let problem = "the token for the upstream was not read; the former one is used"
            access.reloadFailure = problem
            logger.error("\(problem)", metadata: ["error": "\(error)"])
            return problem
        }
    }
}
