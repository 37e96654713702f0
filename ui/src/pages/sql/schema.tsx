// schema.tsx: tables with their columns, and functions.
import type { JSX } from 'preact';
import { isView, type SqlSchema } from '../../model/sql.ts';
import { Loading } from '../../widgets/states.tsx';

export function SchemaList({ schema }: { readonly schema: SqlSchema | undefined }): JSX.Element {
  return (
    <section class="ss-sql-schema" aria-label="Tables and columns">
      {schema === undefined ? (
        <Loading what="Starting the SQL engine" />
      ) : (
        <>
          <h2>Tables</h2>
          {schema.tables.map(({ name, row, columns }) => (
            <details key={name} name="table">
              <summary title={isView(name) ? row : `One row is ${row}`}>
                <code>{name}</code> <span class="ss-quiet">{row}</span>
              </summary>
              <dl>
                {columns.map((column) => (
                  <div
                    key={column.name}
                    title={column.meaning === '' ? undefined : `${column.type}. ${column.meaning}`}
                  >
                    <dt>
                      <code>{column.name}</code> <span class="ss-quiet">{column.type}</span>
                    </dt>
                    <dd>{column.meaning}</dd>
                  </div>
                ))}
              </dl>
            </details>
          ))}
          <details>
            <summary>Functions</summary>
            <dl>
              {schema.functions.map(({ call, meaning }) => (
                <div key={call}>
                  <dt>
                    <code>{call}</code>
                  </dt>
                  <dd>{meaning}</dd>
                </div>
              ))}
            </dl>
          </details>
        </>
      )}
    </section>
  );
}
