package tidegate.spring;

/** Properties that cannot be meant. */
final class MisconfiguredException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final String action;

    MisconfiguredException(String description, String action) {
        super(description + ". " + action);
        this.action = action;
    }

    /** What to write instead. */
    String action() {
        return action;
    }
}
