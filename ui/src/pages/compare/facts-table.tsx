// facts-table.tsx: a table of figures of both runs and their differences.
import type { ComponentChildren, JSX } from 'preact';

/** `children`: rows with a title and three cells. */
export function FactsTable({ children }: { readonly children: ComponentChildren }): JSX.Element {
  return (
    <table class="ss-compare-facts">
      <thead>
        <tr>
          <td />
          <th scope="col">Base</th>
          <th scope="col">New</th>
          <th scope="col">Difference</th>
        </tr>
      </thead>
      <tbody>{children}</tbody>
    </table>
  );
}
