package tidegate.spring;

import org.springframework.boot.context.properties.ConfigurationProperties;

/**
 * What {@code tidegate.*} says. The limits themselves are in a document, which has one language everywhere.
 *
 * @param document where the document is: {@code classpath:tidegate.toml}, or a file, whose name ends in {@code .toml},
 *     {@code .json}, {@code .yaml} or {@code .yml}
 * @param toml the document itself, instead
 * @param watch whether the file is read again when it changes
 * @param order the place of the filter among those of the service
 * @param userOrder where Spring Security is: the place of the filter that judges requests whose route needs the user; behind
 *     Security's unless said
 */
@ConfigurationProperties("tidegate")
public record TidegateProperties(String document, String toml, boolean watch, Integer order, Integer userOrder) {
    /**
     * Behind Boot's filters that change a request's method and parameters, before everything that costs something.
     */
    static final int ORDER = -9_000;

    public TidegateProperties {
        order = order == null ? ORDER : order;
    }
}
